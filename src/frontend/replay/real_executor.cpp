// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/real_executor.hpp"

#include <cstdint>
#include <memory>
#include <utility>

#include "frontend/replay/executor.hpp"
#include "frontend/replay/kv_memory.hpp"
#include "frontend/replay/kv_store.hpp"
#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::replay_detail {
namespace {

/// The library's error with what was tried for whom.
ReplayError failed(const char* operation, const Sequence& sequence, KvStoreError error) {
  return {ReplayError::Kind(ExecutionFailed{.operation = operation,
                                            .request = sequence.request,
                                            .incarnation = sequence.incarnation}),
          std::move(error).cause};
}

Result<void, ReplayError> outcome(const char* operation,
                                  const Sequence& sequence,
                                  KvStore::Outcome done) {
  if (!done) {
    return fail(failed(operation, sequence, std::move(done).error()));
  }
  return {};
}

}  // namespace

RealExecutor::RealExecutor(const ReplayInput& input,
                           const ReplayOptions& options,
                           ReplayPolicy policy,
                           std::shared_ptr<host::SystemCalls> calls)
    : holding_(policy, options.geometry, options.granule, options.context_tokens),
      verify_(options.verify || options.corrupt_write.has_value()),
      start_(steady_clock().now()),
      bench_(input, options, std::move(calls)) {}

Result<std::unique_ptr<RealExecutor>, ReplayError> RealExecutor::create(
    const ReplayInput& input,
    const ReplayOptions& options,
    ReplayPolicy policy,
    std::shared_ptr<host::SystemCalls> calls) {
  std::unique_ptr<RealExecutor> executor(
      new RealExecutor(input, options, policy, std::move(calls)));
  auto memory = KvMemory::create(executor->bench_, options.inject);
  if (!memory) {
    return fail(failed("set-up", {}, std::move(memory).error()));
  }
  executor->memory_ = *std::move(memory);
  auto store = make_store(policy, input, executor->holding_, executor->bench_, *executor->memory_);
  if (!store) {
    return fail(failed("set-up", {}, std::move(store).error()));
  }
  executor->store_ = *std::move(store);
  return executor;
}

Result<void, ReplayError> RealExecutor::admit(const AdmitStep& step) {
  const Sequence sequence{.request = step.request,
                          .incarnation = step.incarnation,
                          .tokens = step.tokens,
                          .room = step.capacity,
                          .path = step.path};
  MEMSTRATA_TRY_VOID(outcome("admission", sequence, store_->admit(sequence, step.hits)));
  sequences_.insert_or_assign(step.request, sequence);
  return {};
}

Result<void, ReplayError> RealExecutor::grow(const GrowStep& step) {
  Sequence& sequence = sequences_.at(step.request);
  sequence.tokens = step.tokens;
  return outcome("growth", sequence, store_->grow(sequence, step.capacity));
}

Result<void, ReplayError> RealExecutor::finish(std::uint64_t request) {
  const auto found = sequences_.find(request);
  if (verify_) {
    check(found->second);
  }
  MEMSTRATA_TRY_VOID(outcome("release", found->second, store_->drop(found->second)));
  sequences_.erase(found);
  return {};
}

// Every byte once, through the sequence's own addresses.
void RealExecutor::check(const Sequence& sequence) {
  const IdleTimer timer(bench_);
  for (const KvPiece& piece : store_->pieces(sequence)) {
    bench_.check_full(sequence, piece.bytes, piece.data);
  }
  store_->check_sliding(sequence);
}

Result<void, ReplayError> RealExecutor::preempt(std::uint64_t request) {
  const auto found = sequences_.find(request);
  bench_.lost_request(request, holding_.shares());
  MEMSTRATA_TRY_VOID(outcome("preemption", found->second, store_->drop(found->second)));
  sequences_.erase(found);
  return {};
}

Result<void, ReplayError> RealExecutor::evict(BlockIndex block) {
  bench_.lost_block(block);
  return outcome("eviction", Sequence{}, store_->evict(block));
}

Bytes RealExecutor::end_step() {
  return memory_->end_step();
}

Bytes RealExecutor::observe(Bytes committed) {
  const Bytes withheld = memory_->end_step();
  bench_.observe(committed + withheld);
  return withheld;
}

// After the loss of the device nothing is released any more: its owners only let go.
Result<void, ReplayError> RealExecutor::end() {
  bench_.sample_kernel();
  if (!is_device_lost()) {
    auto cleared = store_->clear();
    if (!cleared && !is_device_lost()) {
      return fail(failed("the last release", {}, std::move(cleared).error()));
    }
  }
  store_.reset();
  ReplayReleases releases = memory_->close();
  const auto worked = steady_clock().now() - start_ - bench_.idle_time();
  bench_.end(releases.residual_charged + releases.live_charged);
  bench_.set_releases(std::move(releases));
  if (is_device_lost()) {
    bench_.check_end_of_lost_device(memory_->end_lost_device());
  }
  return bench_.write_recording(worked);
}

ExecutionFigures RealExecutor::figures() {
  return bench_.figures();
}

}  // namespace memstrata::replay_detail
