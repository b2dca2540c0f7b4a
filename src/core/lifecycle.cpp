// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/lifecycle.hpp"

#include <string_view>
#include <utility>

namespace memstrata {

std::string_view to_string(MechanismLifecycle state) noexcept {
  switch (state) {
    case MechanismLifecycle::active:
      return "active";
    case MechanismLifecycle::retired:
      return "retired";
    case MechanismLifecycle::device_lost:
      return "device lost";
    case MechanismLifecycle::terminated:
      return "terminated";
  }
  std::unreachable();
}

std::string_view to_string(ProviderContextLifecycle state) noexcept {
  switch (state) {
    case ProviderContextLifecycle::active:
      return "active";
    case ProviderContextLifecycle::retiring:
      return "retiring";
    case ProviderContextLifecycle::device_lost:
      return "device lost";
    case ProviderContextLifecycle::terminated:
      return "terminated";
  }
  std::unreachable();
}

std::string_view to_string(MechanismCoherence coherence) noexcept {
  switch (coherence) {
    case MechanismCoherence::self_contained:
      return "self-contained";
    case MechanismCoherence::trusted_composite:
      return "trusted composite";
  }
  std::unreachable();
}

}  // namespace memstrata
