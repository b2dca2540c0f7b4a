// SPDX-License-Identifier: Apache-2.0
#include "governance/binding/registry_state.hpp"

#include <memory>
#include <utility>

#include "governance/binding/mechanism_record.hpp"
#include "governance/binding/provider_context_record.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/mechanism_ref.hpp"

namespace memstrata::detail {

Result<MechanismRef, BindingError> RegistryState::lookup(MechanismIdentity id) {
  if (!issued(id)) {
    return fail(BindingError(ForeignRegistry{.kind = RegisteredKind::mechanism}));
  }
  const MutexLock lock(mutex);
  MechanismRef found = find(id);
  if (!found) {
    return fail(BindingError(UnregisteredMechanism{.mechanism = id}));
  }
  return found;
}

Result<std::shared_ptr<ProviderContextRecord>, BindingError> RegistryState::lookup(
    ProviderContextIdentity id) {
  if (!issued(id)) {
    return fail(BindingError(ForeignRegistry{.kind = RegisteredKind::provider_context}));
  }
  const MutexLock lock(mutex);
  auto found = find(id);
  if (found == nullptr) {
    return fail(BindingError(UnregisteredProviderContext{.context = id}));
  }
  return found;
}

void RegistryState::deselect(const MechanismRecord& mechanism) {
  const auto slot = selected.find(key(mechanism.parts().device));
  if (slot != selected.end() && slot->second == mechanism.parts().identity) {
    slot->second.reset();
  }
}

}  // namespace memstrata::detail
