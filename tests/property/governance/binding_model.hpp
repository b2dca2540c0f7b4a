// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"

namespace memstrata::test {

/// What the model expects of a call: nothing for success, or which alternative of `BindingError`.
using Verdict = std::optional<std::size_t>;

template <class Wanted, class... Alternatives>
[[nodiscard]] constexpr std::size_t index_among(
    std::type_identity<std::variant<Alternatives...>> /*kind*/) noexcept {
  std::size_t index = 0;
  static_cast<void>(((std::is_same_v<Wanted, Alternatives> || (++index, false)) || ...));
  return index;
}

template <class Alternative>
[[nodiscard]] constexpr Verdict refused() noexcept {
  return index_among<Alternative>(std::type_identity<BindingError::Kind>{});
}

/// The naive books of a registry: plain lists, every answer is searched and counted again.
struct BindingModel {
  struct Context {
    DeviceKey device;
    bool registered = true;
    ProviderContextLifecycle lifecycle = ProviderContextLifecycle::active;
    std::uint64_t pins = 0;
  };

  struct Authority {
    DeviceKey device;
    bool registered = true;
  };

  struct Mechanism {
    DeviceKey device;
    std::size_t context;
    std::size_t authority;
    bool registered = true;
    MechanismLifecycle lifecycle = MechanismLifecycle::active;
    std::string reason{};
  };

  struct Binding {
    std::size_t mechanism;
  };

  /// Who refers to an allocation.
  enum class Hold : std::uint8_t { owner, request, nobody };

  struct Allocation {
    std::size_t binding;
    Bytes bytes;
    AllocationReleaseState state = AllocationReleaseState::live;
    Hold hold = Hold::owner;
    std::uint64_t views = 0;
    bool in_memory = true;  ///< The mechanism still has it.
    bool discharged = false;
    Bytes retained{};
    QuarantineReason reason{QuarantineReason::Kind::owner_dropped};
  };

  std::vector<Context> contexts;
  std::vector<Authority> authorities;
  std::vector<Mechanism> mechanisms;
  std::vector<Binding> bindings;
  std::vector<Allocation> allocations;
  std::map<std::uint32_t, std::optional<std::size_t>> selected;  // by index of the device

  [[nodiscard]] Mechanism& mechanism_of(const Allocation& allocation) {
    return mechanisms.at(bindings.at(allocation.binding).mechanism);
  }

  [[nodiscard]] const Mechanism& mechanism_of(const Allocation& allocation) const {
    return mechanisms.at(bindings.at(allocation.binding).mechanism);
  }

  [[nodiscard]] std::uint64_t count(std::size_t mechanism, AllocationReleaseState state) const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(allocations, [&](const Allocation& each) {
          return !each.discharged && bindings.at(each.binding).mechanism == mechanism &&
                 each.state == state;
        }));
  }

  [[nodiscard]] std::uint64_t quarantined(std::size_t mechanism) const {
    return count(mechanism, AllocationReleaseState::quarantined) +
           count(mechanism, AllocationReleaseState::device_lost) +
           count(mechanism, AllocationReleaseState::partially_unmapped);
  }

  [[nodiscard]] std::uint64_t users_of_context(std::size_t context) const {
    return static_cast<std::uint64_t>(std::ranges::count_if(mechanisms, [&](const Mechanism& each) {
      return each.registered && each.context == context;
    }));
  }

  [[nodiscard]] std::uint64_t users_of_authority(std::size_t authority) const {
    return static_cast<std::uint64_t>(std::ranges::count_if(mechanisms, [&](const Mechanism& each) {
      return each.registered && each.authority == authority;
    }));
  }

  /// The refusal of new work.
  [[nodiscard]] static Verdict inactive(const Mechanism& mechanism) {
    if (mechanism.lifecycle == MechanismLifecycle::active) {
      return std::nullopt;
    }
    return mechanism.lifecycle == MechanismLifecycle::device_lost ? refused<DeviceLost>()
                                                                  : refused<InactiveMechanism>();
  }

  /// The refusal of a release.
  [[nodiscard]] static Verdict unreleasable(const Mechanism& mechanism) {
    return mechanism.lifecycle == MechanismLifecycle::retired ? std::nullopt : inactive(mechanism);
  }

  void deselect(std::size_t mechanism) {
    for (auto& [device, slot] : selected) {
      if (slot == mechanism) {
        slot.reset();
      }
    }
  }

  [[nodiscard]] Verdict register_mechanism(std::size_t context,
                                           std::size_t authority,
                                           DeviceKey device) {
    const Context& ground = contexts.at(context);
    if (!ground.registered) {
      return refused<UnregisteredProviderContext>();
    }
    if (!authorities.at(authority).registered) {
      return refused<UnregisteredAuthority>();
    }
    if (ground.lifecycle != ProviderContextLifecycle::active) {
      return refused<InactiveProviderContext>();
    }
    if (authorities.at(authority).device != ground.device || device != ground.device) {
      return refused<DeviceMismatch>();
    }
    mechanisms.push_back({.device = device, .context = context, .authority = authority});
    auto& slot = selected[device.index];
    if (!slot) {
      slot = mechanisms.size() - 1;
    }
    return std::nullopt;
  }

  [[nodiscard]] Verdict select(std::size_t mechanism) {
    if (!mechanisms.at(mechanism).registered) {
      return refused<UnregisteredMechanism>();
    }
    if (mechanisms.at(mechanism).lifecycle != MechanismLifecycle::active) {
      return refused<InactiveMechanism>();
    }
    selected[mechanisms.at(mechanism).device.index] = mechanism;
    return std::nullopt;
  }

  [[nodiscard]] Verdict retire(std::size_t mechanism) {
    Mechanism& one = mechanisms.at(mechanism);
    if (!one.registered) {
      return refused<UnregisteredMechanism>();
    }
    if (one.lifecycle == MechanismLifecycle::active) {
      one.lifecycle = MechanismLifecycle::retired;
    }
    deselect(mechanism);
    return std::nullopt;
  }

  [[nodiscard]] Verdict remove(std::size_t mechanism) {
    Mechanism& one = mechanisms.at(mechanism);
    if (!one.registered) {
      return refused<UnregisteredMechanism>();
    }
    if (quarantined(mechanism) != 0) {
      return refused<QuarantinedOwnership>();
    }
    if (one.lifecycle == MechanismLifecycle::active ||
        count(mechanism, AllocationReleaseState::live) != 0 ||
        count(mechanism, AllocationReleaseState::queued) != 0) {
      return refused<InactiveMechanism>();
    }
    one.registered = false;
    deselect(mechanism);
    return std::nullopt;
  }

  void invalidate(DeviceKey device, const std::string& reason) {
    for (Context& each : contexts) {
      if (each.registered && each.device == device &&
          each.lifecycle != ProviderContextLifecycle::terminated) {
        each.lifecycle = ProviderContextLifecycle::device_lost;
      }
    }
    for (std::size_t i = 0; i < mechanisms.size(); ++i) {
      Mechanism& each = mechanisms.at(i);
      if (each.registered && each.device == device &&
          each.lifecycle != MechanismLifecycle::terminated) {
        each.lifecycle = MechanismLifecycle::device_lost;
        each.reason = reason;
        deselect(i);
      }
    }
  }

  [[nodiscard]] Verdict confirm(std::size_t context) {
    Context& one = contexts.at(context);
    if (!one.registered) {
      return refused<UnregisteredProviderContext>();
    }
    std::uint64_t active = one.lifecycle == ProviderContextLifecycle::device_lost ? one.pins : 0;
    for (std::size_t i = 0; i < mechanisms.size(); ++i) {
      if (!mechanisms.at(i).registered || mechanisms.at(i).context != context) {
        continue;
      }
      if (mechanisms.at(i).lifecycle != MechanismLifecycle::device_lost) {
        return refused<InactiveMechanism>();
      }
      active += count(i, AllocationReleaseState::queued);
    }
    if (active != 0) {
      return refused<ContextNotQuiescent>();
    }
    for (Mechanism& each : mechanisms) {
      if (each.registered && each.context == context) {
        each.lifecycle = MechanismLifecycle::terminated;
      }
    }
    for (Allocation& each : allocations) {
      const Mechanism& its = mechanism_of(each);
      each.discharged |= its.registered && its.context == context;
    }
    if (one.lifecycle == ProviderContextLifecycle::device_lost) {
      one.lifecycle = ProviderContextLifecycle::terminated;
    }
    return std::nullopt;
  }

  [[nodiscard]] Verdict retire_context(std::size_t context) {
    Context& one = contexts.at(context);
    if (!one.registered) {
      return refused<UnregisteredProviderContext>();
    }
    if (one.lifecycle == ProviderContextLifecycle::active) {
      one.lifecycle = ProviderContextLifecycle::retiring;
    }
    for (std::size_t i = 0; i < mechanisms.size(); ++i) {
      if (mechanisms.at(i).registered && mechanisms.at(i).context == context) {
        static_cast<void>(retire(i));
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] Verdict remove_context(std::size_t context) {
    Context& one = contexts.at(context);
    if (!one.registered) {
      return refused<UnregisteredProviderContext>();
    }
    if (users_of_context(context) != 0 || one.pins != 0) {
      return refused<ProviderContextInUse>();
    }
    one.registered = false;
    return std::nullopt;
  }

  [[nodiscard]] Verdict remove_authority(std::size_t authority) {
    if (!authorities.at(authority).registered) {
      return refused<UnregisteredAuthority>();
    }
    if (users_of_authority(authority) != 0) {
      return refused<AuthorityInUse>();
    }
    authorities.at(authority).registered = false;
    return std::nullopt;
  }

  [[nodiscard]] Verdict prepare(std::size_t allocation) {
    Allocation& one = allocations.at(allocation);
    if (const Verdict why = unreleasable(mechanism_of(one))) {
      return why;
    }
    if (one.views != 0) {
      return refused<OutstandingViews>();
    }
    one.state = AllocationReleaseState::queued;
    one.hold = Hold::request;
    return std::nullopt;
  }

  void settle(std::size_t allocation,
              AllocationReleaseState state,
              QuarantineReason reason,
              Bytes retained) {
    Allocation& one = allocations.at(allocation);
    one.state = state;
    one.reason = reason;
    one.retained = retained;
    one.hold = Hold::nobody;
  }

  void drop_owner(std::size_t allocation) {
    Allocation& one = allocations.at(allocation);
    one.hold = Hold::nobody;
    if (!unreleasable(mechanism_of(one))) {
      settle(allocation,
             AllocationReleaseState::quarantined,
             QuarantineReason(QuarantineReason::Kind::owner_dropped),
             one.bytes);
    }
  }

  [[nodiscard]] Verdict reclaim(std::size_t allocation) {
    Allocation& one = allocations.at(allocation);
    if (!mechanism_of(one).registered) {
      return refused<UnregisteredMechanism>();
    }
    if (const Verdict why = unreleasable(mechanism_of(one))) {
      return why;
    }
    if (!is_quarantine(one.state)) {
      return refused<StaleAllocation>();
    }
    if (one.state != AllocationReleaseState::quarantined || !one.reason.permits_reclaim()) {
      return refused<NotReclaimable>();
    }
    if (one.views != 0) {
      return refused<OutstandingViews>();
    }
    one.state = AllocationReleaseState::queued;
    one.hold = Hold::request;
    return std::nullopt;
  }

  [[nodiscard]] Verdict reconcile(std::size_t allocation) {
    Allocation& one = allocations.at(allocation);
    if (!mechanism_of(one).registered) {
      return refused<UnregisteredMechanism>();
    }
    if (mechanism_of(one).lifecycle == MechanismLifecycle::terminated) {
      return refused<InactiveMechanism>();
    }
    if (!is_quarantine(one.state)) {
      return refused<StaleAllocation>();
    }
    one.state = AllocationReleaseState::released;
    return std::nullopt;
  }
};

}  // namespace memstrata::test
