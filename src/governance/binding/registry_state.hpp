// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "governance/binding/mechanism_record.hpp"
#include "governance/binding/provider_context_record.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/mechanism_ref.hpp"

namespace memstrata::detail {

/// What the handles of one registry share. Its mutex comes before those of the mechanisms. Under it nothing is
/// called, allocated or destroyed: the tables take nodes that were made before it was taken, and give up nodes that
/// end after it was left.
class RegistryState {
 public:
  using Contexts = std::map<std::uint64_t, std::shared_ptr<ProviderContextRecord>>;
  using Authorities = std::map<std::uint64_t, std::shared_ptr<AuthorityRecord>>;
  using Mechanisms = std::map<std::uint64_t, MechanismRef>;
  using Selection = std::map<std::pair<Tier, std::uint32_t>, std::optional<MechanismIdentity>>;

  RegistryState(std::uint64_t registry, BindingRegistryOptions chosen)
      : identities(std::make_shared<IdentitySource>(registry, chosen.first_serial)),
        options(chosen) {}

  [[nodiscard]] static Selection::key_type key(DeviceKey device) noexcept {
    return {device.tier, device.index};
  }

  /// Whether this registry issued the identity.
  template <class Tag>
  [[nodiscard]] bool issued(OpaqueId<Tag> id) const noexcept {
    return id.registry() == identities->registry();
  }

  [[nodiscard]] std::shared_ptr<ProviderContextRecord> find(ProviderContextIdentity id) const
      MEMSTRATA_REQUIRES(mutex) {
    const auto found = contexts.find(id.serial());
    return found == contexts.end() ? nullptr : found->second;
  }

  [[nodiscard]] std::shared_ptr<AuthorityRecord> find(AuthorityIdentity id) const
      MEMSTRATA_REQUIRES(mutex) {
    const auto found = authorities.find(id.serial());
    return found == authorities.end() ? nullptr : found->second;
  }

  [[nodiscard]] MechanismRef find(MechanismIdentity id) const MEMSTRATA_REQUIRES(mutex) {
    const auto found = mechanisms.find(id.serial());
    return found == mechanisms.end() ? MechanismRef() : found->second;
  }

  /// The mechanism of a handle. Errors: ForeignRegistry; UnregisteredMechanism.
  [[nodiscard]] Result<MechanismRef, BindingError> lookup(MechanismIdentity id)
      MEMSTRATA_EXCLUDES(mutex);
  /// The same for contexts. Errors: ForeignRegistry; UnregisteredProviderContext.
  [[nodiscard]] Result<std::shared_ptr<ProviderContextRecord>, BindingError> lookup(
      ProviderContextIdentity id) MEMSTRATA_EXCLUDES(mutex);

  /// The slot of the device stops naming the mechanism, if it does.
  void deselect(const MechanismRecord& mechanism) MEMSTRATA_REQUIRES(mutex);

  const std::shared_ptr<IdentitySource> identities;
  const BindingRegistryOptions options;
  mutable Mutex mutex;
  Contexts contexts MEMSTRATA_GUARDED_BY(mutex);
  Authorities authorities MEMSTRATA_GUARDED_BY(mutex);
  Mechanisms mechanisms MEMSTRATA_GUARDED_BY(mutex);
  /// A slot stays once it exists; it names nothing, or a registered and active mechanism.
  Selection selected MEMSTRATA_GUARDED_BY(mutex);
};

/// What `make` gives, or an error if there is no memory for it: no exception leaves the library. Nothing of the
/// registry was changed then.
template <class Make>
[[nodiscard]] std::invoke_result_t<Make> unless_out_of_memory(Make&& make) {
  try {
    return std::forward<Make>(make)();
  } catch (const std::bad_alloc&) {
    return fail(BindingError(MemoryError(AllocationFailed{
        .tier = Tier::host,
        .requested = {},
        .reason = "there is no memory for the books of the registry; nothing was changed"})));
  }
}

/// A table's node, made where memory may be allocated.
template <class Table>
[[nodiscard]] typename Table::node_type make_node(typename Table::key_type key,
                                                  typename Table::mapped_type value) {
  Table one;
  one.emplace(std::move(key), std::move(value));
  return one.extract(one.begin());
}

}  // namespace memstrata::detail
