// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/binding_error.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {
namespace {

template <class Tag>
std::string number(OpaqueId<Tag> id) {
  return fmt::format("#{} of registry {}", id.serial(), id.registry());
}

std::string name(DeviceKey device) {
  return fmt::format("{} {}", to_string(device.tier), device.index);
}

std::string name(const AllocationIdentity& allocation) {
  return fmt::format("allocation {} (binding #{}, {})",
                     number(allocation.generation),
                     allocation.binding.id.serial(),
                     name(allocation.binding.device));
}

std::string_view name(RegisteredKind kind) {
  switch (kind) {
    case RegisteredKind::provider_context:
      return "provider context";
    case RegisteredKind::authority:
      return "authority";
    case RegisteredKind::mechanism:
      return "mechanism";
    case RegisteredKind::allocation:
      return "allocation";
  }
  std::unreachable();
}

std::string_view name(DeviceSubject subject) {
  switch (subject) {
    case DeviceSubject::authority:
      return "authority";
    case DeviceSubject::allocator:
      return "allocator";
  }
  std::unreachable();
}

std::string sentence(const IdentityExhausted& /*error*/) {
  return "the identity space of this registry is used up: it issues nothing any more; make a new "
         "registry";
}

std::string sentence(const ForeignRegistry& error) {
  return fmt::format("the {} was issued by another registry; use the registry that issued it",
                     name(error.kind));
}

std::string sentence(const DeviceMismatch& error) {
  return fmt::format(
      "the {} is of device {}, the provider context of device {}; register parts of one device",
      name(error.subject),
      name(error.actual),
      name(error.expected));
}

std::string sentence(const UnregisteredProviderContext& error) {
  return fmt::format("provider context {} is not registered any more; register it again",
                     number(error.context));
}

std::string sentence(const UnregisteredAuthority& error) {
  return fmt::format("authority {} is not registered any more; register it again",
                     number(error.authority));
}

std::string sentence(const UnregisteredMechanism& error) {
  return fmt::format("mechanism {} is not registered any more; register it again",
                     number(error.mechanism));
}

std::string sentence(const ProviderContextInUse& error) {
  return fmt::format(
      "provider context {} is used by {} mechanisms and {} pins; remove the mechanisms and let the "
      "pins go first",
      number(error.context),
      error.mechanisms,
      error.pins);
}

std::string sentence(const AuthorityInUse& error) {
  return fmt::format("authority {} is used by {} mechanisms; remove them first",
                     number(error.authority),
                     error.mechanisms);
}

std::string sentence(const NoSelectedMechanism& error) {
  return fmt::format("no mechanism is selected for device {}; register or select one",
                     name(error.device));
}

std::string sentence(const InactiveMechanism& error) {
  return fmt::format("{} refused: mechanism {} is {}",
                     error.operation,
                     number(error.mechanism),
                     to_string(error.lifecycle));
}

std::string sentence(const InactiveProviderContext& error) {
  return fmt::format("{} refused: provider context {} is {}",
                     error.operation,
                     number(error.context),
                     to_string(error.lifecycle));
}

std::string sentence(const DeviceLost& error) {
  return fmt::format(
      "device {} was lost ({}); what it holds stays on the books until the end of its context is "
      "confirmed",
      name(error.device),
      error.reason.empty() ? std::string_view("no reason was given") : error.reason.view());
}

std::string sentence(const BindingMismatch& error) {
  return fmt::format("binding {} was given something of binding {}; use the binding that made it",
                     number(error.expected),
                     number(error.actual));
}

std::string sentence(const StaleAllocation& error) {
  return fmt::format("{} is not live: it was released, is being released, or is in quarantine",
                     name(error.allocation));
}

std::string sentence(const OutstandingViews& error) {
  return fmt::format("{} has {} views or calls in flight; it cannot be released before they end",
                     name(error.allocation),
                     error.views);
}

std::string sentence(const QuarantinedOwnership& error) {
  return fmt::format(
      "mechanism {} holds {} allocations in quarantine; reclaim or reconcile them, or confirm the "
      "end of its context",
      number(error.mechanism),
      error.count);
}

std::string sentence(const ViewOutOfBounds& error) {
  return fmt::format("the range from offset {} to {} ends beyond the allocation of {} bytes",
                     error.offset.value,
                     error.end.value,
                     error.allocation_bytes.value);
}

std::string sentence(const ContextNotQuiescent& error) {
  return fmt::format(
      "provider context {} has {} active operations (calls, queued releases, pins); try again when "
      "they have ended",
      number(error.context),
      error.active_operations);
}

std::string sentence(const NotReclaimable& error) {
  return fmt::format(
      "{} is {} ({}): its allocator was called already, so that it cannot be released again; "
      "reconcile it with proof that the memory is gone",
      name(error.allocation),
      to_string(error.state),
      error.reason.phrase());
}

std::string sentence(const CallbackFailed& error) {
  return fmt::format("{} threw: {}", error.callback, error.reason.view());
}

std::string sentence(const QueueNotIdle& error) {
  if (error.called_from_queue) {
    return fmt::format(
        "the release queue has {} pending releases and runs the caller itself; wait from another "
        "thread",
        error.pending);
  }
  return fmt::format(
      "the release queue still had {} pending releases when the deadline passed; their memory is "
      "not free yet",
      error.pending);
}

std::string sentence(const MemoryError& error) {
  return error.message();
}

}  // namespace

std::string BindingError::message() const {
  return std::visit([](const auto& error) { return sentence(error); }, kind);
}

}  // namespace memstrata
