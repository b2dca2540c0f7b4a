// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/kv_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/replay/kv_mechanism.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/release_injection.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "memstrata/governance/host_timeline.hpp"

namespace memstrata::replay_detail {
namespace {

std::uint64_t release_that_loses(const std::vector<ReleaseInjection>& injections) noexcept {
  std::uint64_t first = 0;
  for (const ReleaseInjection& injection : injections) {
    if (injection.fault == ReleaseFault::lose && (first == 0 || injection.release < first)) {
      first = injection.release;
    }
  }
  return first;
}

}  // namespace

Result<std::unique_ptr<KvMemory>, BindingError> KvMemory::create(
    Workbench& bench,
    const std::vector<ReleaseInjection>& injections) {
  const DeviceKey device = DeviceKey::host();
  MEMSTRATA_TRY(BindingRegistry registry, BindingRegistry::create());
  MEMSTRATA_TRY(auto context, registry.register_provider_context(device, nullptr));
  MEMSTRATA_TRY(const auto authority, registry.register_authority(device, bench.governor()));
  auto mechanism = std::make_shared<KvMechanism>(bench, injections);
  MEMSTRATA_TRY(auto registered, registry.register_allocator(context, authority, mechanism));
  MEMSTRATA_TRY(auto binding, registry.bind(registered));
  MEMSTRATA_TRY(auto pins, registry.pin_source(context));
  return std::unique_ptr<KvMemory>(new KvMemory({.registry = std::move(registry),
                                                 .context = context,
                                                 .registered = registered,
                                                 .mechanism = std::move(mechanism),
                                                 .binding = std::move(binding),
                                                 .pins = std::move(pins)},
                                                release_that_loses(injections)));
}

KvMemory::KvMemory(Parts parts, std::uint64_t lose_at)
    : registry_(std::move(parts.registry)),
      context_(parts.context),
      registered_(parts.registered),
      mechanism_(std::move(parts.mechanism)),
      binding_(std::move(parts.binding)),
      timeline_(std::make_shared<HostTimeline>()),
      queue_({.fences = timeline_, .pins = std::move(parts.pins)}),
      step_(timeline_->submit()),
      lose_at_(lose_at) {}

Result<void, BindingError> KvMemory::release_owner(OwningAllocation owner) {
  const DeviceAddress address = owner.address();
  mechanism_->number_release(address, queued_ + 1);
  MEMSTRATA_TRY(const auto given, owner.release_deferred(queue_));
  ++queued_;
  if (!given.is_queued()) {
    mechanism_->keep_back(address);
  }
  if (queued_ == lose_at_) {
    lose_device();
    return fail(BindingError(
        DeviceLost{.device = registered_.device,
                   .reason = ErrorText::copy(fmt::format("injected at release {}", lost_at_))}));
  }
  return {};
}

// The fences of what is queued are lost with their step, so that the queue settles it without a call.
void KvMemory::lose_device() {
  lost_at_ = queued_;
  timeline_->lose();
  registry_.invalidate_device(registered_.device,
                              ErrorText::copy(fmt::format("injected at release {}", lost_at_)));
  queue_.poll();
}

Bytes KvMemory::end_step() {
  if (queue_.pending() != 0) {
    timeline_->complete(step_);
    queue_.poll();
    step_ = timeline_->submit();
  }
  return mechanism_->withheld();
}

ReplayReleases KvMemory::close() {
  ReplayReleases result;
  if (!is_device_lost()) {
    end_step();
    settle_refused();
  }
  result.reconciled = reconciled_;
  const ReleaseQueueCounters counters = queue_.counters();
  result.queued = queued_;
  result.executed = counters.executed;
  result.released = counters.released;
  result.quarantined = counters.quarantined + counters.rejected;
  result.injected = mechanism_->injected() + (is_device_lost() ? 1 : 0);
  result.device_lost = is_device_lost();
  for (const QuarantinedAllocation& record : quarantined()) {
    const KvLeftover leftover = mechanism_->leftover(record.address);
    if (is_device_lost()) {
      mechanism_->keep_back(record.address);
    }
    if (result.residuals.size() < most_listed) {
      result.residuals.push_back({.release = leftover.release,
                                  .kind = leftover.kind,
                                  .request = leftover.request,
                                  .state = record.state,
                                  .reason = record.reason,
                                  .address = record.address,
                                  .bytes = record.bytes,
                                  .retained = record.retained_bytes,
                                  .charged = leftover.charged});
    }
  }
  std::ranges::sort(result.residuals, {}, &ReplayResidual::release);
  result.residual_charged = mechanism_->withheld();
  result.live = binding_.mechanism_snapshot().live_allocations;
  result.live_charged = mechanism_->charged() - result.residual_charged;
  return result;
}

void KvMemory::settle_refused() {
  const std::vector<DeviceAddress> gone = mechanism_->retry_refused();
  if (gone.empty()) {
    return;
  }
  for (const QuarantinedAllocation& record : quarantined()) {
    if (std::ranges::find(gone, record.address) != gone.end() &&
        registry_.reconcile(record.identity, attest_memory_gone)) {
      ++reconciled_;
    }
  }
}

std::vector<QuarantinedAllocation> KvMemory::quarantined() const {
  const QuarantinedAllocations list = binding_.quarantined();
  return {list.begin(), list.end()};
}

std::optional<std::string> KvMemory::end_lost_device() {
  if (auto confirmed = registry_.confirm_context_terminated(context_); !confirmed) {
    return "the end of the lost device's context was not confirmed: " + confirmed.error().message();
  }
  const MechanismSnapshot left = binding_.mechanism_snapshot();
  if (left.retains_ownership()) {
    return fmt::format(
        "the end of the lost device's context left {} allocations live and {} in quarantine",
        left.live_allocations,
        left.quarantined_allocations);
  }
  mechanism_->forget_all();
  return std::nullopt;
}

}  // namespace memstrata::replay_detail
