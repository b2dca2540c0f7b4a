// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/replay/kv_mechanism.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/release_injection.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "memstrata/governance/host_timeline.hpp"

namespace memstrata::replay_detail {

/// Memory of the replay with its owner. Dropping it without a release leaves the memory with the mechanism. Move-only.
template <class Memory>
class Owned {
 public:
  [[nodiscard]] Memory& operator*() const noexcept { return *memory_; }

  [[nodiscard]] Memory* operator->() const noexcept { return memory_; }

 private:
  friend class KvMemory;

  Owned(OwningAllocation owner, Memory& memory) noexcept
      : owner_(std::move(owner)), memory_(&memory) {}

  OwningAllocation owner_;
  Memory* memory_;  // with the mechanism, which the owner keeps alive
};

/// Everything that a replay holds, as owned allocations of one binding. Releases wait in a queue for the end of the
/// simulated device step that was under way when they were asked for. Single-threaded.
class KvMemory {
 public:
  /// `bench` outlives it. Errors: those of the registry.
  [[nodiscard]] static Result<std::unique_ptr<KvMemory>, BindingError> create(
      Workbench& bench,
      const std::vector<ReleaseInjection>& injections);

  KvMemory(const KvMemory&) = delete;
  KvMemory& operator=(const KvMemory&) = delete;
  KvMemory(KvMemory&&) = delete;
  KvMemory& operator=(KvMemory&&) = delete;
  ~KvMemory() = default;

  /// Puts the memory on the books. Errors: those of the binding; the memory is gone then.
  template <class Memory>
  [[nodiscard]] Result<Owned<Memory>, BindingError> own(Memory memory, const KvOrigin& origin) {
    settle_refused();
    const auto kept = mechanism_->keep(std::move(memory), origin);
    auto owner = binding_.adopt_allocation(kept.span, attest_sole_owner);
    if (!owner) {
      mechanism_->forget(kept.span.address);
      return fail(std::move(owner).error());
    }
    return Owned<Memory>(*std::move(owner), *kept.memory);
  }

  /// Queues the release behind the step that is under way. Errors: DeviceLost if the device is lost now or was before;
  /// nothing is refunded then.
  template <class Memory>
  [[nodiscard]] Result<void, BindingError> release(Owned<Memory> owned) {
    return release_owner(std::move(owned.owner_));
  }

  /// The device step that is under way ends: what waited for it is released. Returns what is in quarantine and stays
  /// charged.
  Bytes end_step();

  [[nodiscard]] bool is_device_lost() const noexcept { return lost_at_ != 0; }

  /// Every owner is gone or has asked for its release: ends the last step, tries again what the kernel refused, and
  /// adds up. What is charged from now on is what the report says.
  [[nodiscard]] ReplayReleases close();

  /// Gives back what the loss of the device left, as if its process had ended: everything is discharged. Returns what
  /// was not, in words.
  [[nodiscard]] std::optional<std::string> end_lost_device();

 private:
  struct Parts {
    BindingRegistry registry;
    RegisteredProviderContext context;
    RegisteredMechanism registered;
    std::shared_ptr<KvMechanism> mechanism;
    MemoryBinding binding;
    std::shared_ptr<ProviderContextPinSource> pins;
  };

  KvMemory(Parts parts, std::uint64_t lose_at);

  [[nodiscard]] Result<void, BindingError> release_owner(OwningAllocation owner);
  void lose_device();
  /// Discharges what the kernel had refused to take back and has taken since: its addresses may be used again.
  void settle_refused();
  [[nodiscard]] std::vector<QuarantinedAllocation> quarantined() const;

  BindingRegistry registry_;
  RegisteredProviderContext context_;
  RegisteredMechanism registered_;
  std::shared_ptr<KvMechanism> mechanism_;
  MemoryBinding binding_;
  std::shared_ptr<HostTimeline> timeline_;
  FencedReleaseQueue queue_;
  std::uint64_t step_;  // under way
  std::uint64_t queued_ = 0;
  std::uint64_t lose_at_;  // number of the release; 0: never
  std::uint64_t lost_at_ = 0;
  std::uint64_t reconciled_ = 0;
};

}  // namespace memstrata::replay_detail
