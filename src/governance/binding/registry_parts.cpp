// SPDX-License-Identifier: Apache-2.0
// The registry itself, its provider contexts with their pins, and its authorities.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "governance/binding/mechanism_record.hpp"
#include "governance/binding/provider_context_record.hpp"
#include "governance/binding/registry_state.hpp"
#include "memstrata/contract/context_pin.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/provider_context_pin_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"

namespace memstrata {

using detail::AuthorityRecord;
using detail::ProviderContextRecord;
using detail::RegistryState;

namespace {

constinit SerialSource registry_serials;

class ContextPin final : public ProviderContextPin {
 public:
  explicit ContextPin(std::shared_ptr<ProviderContextRecord> pinned) noexcept
      : context_(std::move(pinned)) {}

  ContextPin(const ContextPin&) = delete;
  ContextPin& operator=(const ContextPin&) = delete;
  ContextPin(ContextPin&&) = delete;
  ContextPin& operator=(ContextPin&&) = delete;

  ~ContextPin() override { context_->unpin(); }

  [[nodiscard]] ProviderContextIdentity context() const noexcept override {
    return context_->identity();
  }

 private:
  std::shared_ptr<ProviderContextRecord> context_;
};

class ContextPinSource final : public ProviderContextPinSource {
 public:
  explicit ContextPinSource(std::shared_ptr<ProviderContextRecord> context) noexcept
      : context_(std::move(context)) {}

  [[nodiscard]] ProviderContextIdentity context() const noexcept override {
    return context_->identity();
  }

  [[nodiscard]] Result<std::unique_ptr<ProviderContextPin>, ProviderContextPinError> pin()
      override {
    switch (context_->try_pin()) {
      case ProviderContextRecord::Pinned::unavailable:
        return fail(ProviderContextPinError(ContextUnavailable{
            .context = context_->identity(), .lifecycle = context_->lifecycle()}));
      case ProviderContextRecord::Pinned::overflow:
        return fail(ProviderContextPinError(PinCountOverflow{.context = context_->identity()}));
      case ProviderContextRecord::Pinned::yes:
        break;
    }
    try {
      return std::make_unique<ContextPin>(context_);
    } catch (const std::bad_alloc&) {
      context_->unpin();
      return fail(ProviderContextPinError(PinAllocationFailed{.context = context_->identity()}));
    }
  }

 private:
  std::shared_ptr<ProviderContextRecord> context_;
};

/// Registered mechanisms for which `uses` says yes.
template <class Uses>
std::uint64_t count_users(const RegistryState& state, Uses&& uses) MEMSTRATA_REQUIRES(state.mutex) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      state.mechanisms, [&uses](const auto& each) { return uses(each.second->parts()); }));
}

}  // namespace

Result<BindingRegistry, BindingError> BindingRegistry::create(BindingRegistryOptions options) {
  const auto serial = registry_serials.issue();
  if (!serial) {
    return fail(BindingError(IdentityExhausted{}));
  }
  options.most_pins = std::min(options.most_pins, ProviderContextRecord::largest_pin_count);
  return detail::unless_out_of_memory([&]() -> Result<BindingRegistry, BindingError> {
    return BindingRegistry(std::make_shared<RegistryState>(*serial, options));
  });
}

Result<RegisteredProviderContext, BindingError> BindingRegistry::register_provider_context(
    DeviceKey device,
    BindingResource resource) const {
  const auto identity = state_->identities->issue<ProviderContextIdentity>();
  if (!identity) {
    return fail(BindingError(IdentityExhausted{}));
  }
  return detail::unless_out_of_memory([&]() -> Result<RegisteredProviderContext, BindingError> {
    auto node = detail::make_node<RegistryState::Contexts>(
        identity->serial(),
        std::make_shared<ProviderContextRecord>(
            *identity, device, std::move(resource), state_->options.most_pins));
    const MutexLock lock(state_->mutex);
    state_->contexts.insert(std::move(node));
    return RegisteredProviderContext{.identity = *identity, .device = device};
  });
}

Result<RegisteredAuthority, BindingError> BindingRegistry::register_authority(
    DeviceKey device,
    BindingResource resource) const {
  const auto identity = state_->identities->issue<AuthorityIdentity>();
  if (!identity) {
    return fail(BindingError(IdentityExhausted{}));
  }
  return detail::unless_out_of_memory([&]() -> Result<RegisteredAuthority, BindingError> {
    auto node = detail::make_node<RegistryState::Authorities>(
        identity->serial(),
        std::make_shared<AuthorityRecord>(AuthorityRecord{
            .identity = *identity, .device = device, .resource = std::move(resource)}));
    const MutexLock lock(state_->mutex);
    state_->authorities.insert(std::move(node));
    return RegisteredAuthority{.identity = *identity, .device = device};
  });
}

Result<void, BindingError> BindingRegistry::retire_provider_context(
    const RegisteredProviderContext& context) const {
  MEMSTRATA_TRY(const auto record, state_->lookup(context.identity));
  const MutexLock lock(state_->mutex);
  record->apply(ProviderContextEvent::retire);
  for (const auto& [serial, mechanism] : state_->mechanisms) {
    if (mechanism->parts().context == record) {
      mechanism->gate().apply(MechanismEvent::retire);
      state_->deselect(*mechanism);
    }
  }
  return {};
}

Result<void, BindingError> BindingRegistry::remove_provider_context(
    const RegisteredProviderContext& context) const {
  if (!state_->issued(context.identity)) {
    return fail(BindingError(ForeignRegistry{.kind = RegisteredKind::provider_context}));
  }
  RegistryState::Contexts::node_type ended;  // with the caller's resource, after the lock
  std::shared_ptr<ProviderContextRecord> record;
  {
    const MutexLock lock(state_->mutex);
    record = state_->find(context.identity);
    if (record == nullptr) {
      return fail(BindingError(UnregisteredProviderContext{.context = context.identity}));
    }
    const std::uint64_t users = count_users(
        *state_,
        [&record](const detail::MechanismParts& parts) { return parts.context == record; });
    // No pin is taken after this: a context that is not active refuses, and whoever came before is counted.
    if (users == 0 && record->close_if_unpinned()) {
      ended = state_->contexts.extract(context.identity.serial());
      return {};
    }
    return fail(BindingError(ProviderContextInUse{
        .context = context.identity, .mechanisms = users, .pins = record->pins()}));
  }
}

Result<void, BindingError> BindingRegistry::remove_authority(
    const RegisteredAuthority& authority) const {
  if (!state_->issued(authority.identity)) {
    return fail(BindingError(ForeignRegistry{.kind = RegisteredKind::authority}));
  }
  RegistryState::Authorities::node_type ended;  // with the caller's resource, after the lock
  const MutexLock lock(state_->mutex);
  const auto found = state_->authorities.find(authority.identity.serial());
  if (found == state_->authorities.end()) {
    return fail(BindingError(UnregisteredAuthority{.authority = authority.identity}));
  }
  const std::uint64_t users = count_users(*state_, [&found](const detail::MechanismParts& parts) {
    return parts.authority == found->second;
  });
  if (users != 0) {
    return fail(BindingError(AuthorityInUse{.authority = authority.identity, .mechanisms = users}));
  }
  ended = state_->authorities.extract(found);
  return {};
}

Result<ProviderContextSnapshot, BindingError> BindingRegistry::provider_context(
    const RegisteredProviderContext& context) const {
  MEMSTRATA_TRY(const auto record, state_->lookup(context.identity));
  const MutexLock lock(state_->mutex);
  return ProviderContextSnapshot{
      .identity = record->identity(),
      .device = record->device(),
      .lifecycle = record->lifecycle(),
      .pins = record->pins(),
      .mechanisms = count_users(*state_, [&record](const detail::MechanismParts& parts) {
        return parts.context == record;
      })};
}

Result<std::shared_ptr<ProviderContextPinSource>, BindingError> BindingRegistry::pin_source(
    const RegisteredProviderContext& context) const {
  MEMSTRATA_TRY(auto record, state_->lookup(context.identity));
  return detail::unless_out_of_memory(
      [&]() -> Result<std::shared_ptr<ProviderContextPinSource>, BindingError> {
        return std::make_shared<ContextPinSource>(std::move(record));
      });
}

WeakBindingRegistry BindingRegistry::weak() const noexcept {
  return WeakBindingRegistry(state_);
}

std::optional<BindingRegistry> WeakBindingRegistry::lock() const noexcept {
  auto state = state_.lock();
  return state == nullptr ? std::nullopt : std::optional(BindingRegistry(std::move(state)));
}

}  // namespace memstrata
