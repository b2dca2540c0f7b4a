// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/real_executor.hpp"

#include <cstdint>
#include <memory>
#include <utility>

#include "frontend/replay/executor.hpp"
#include "frontend/replay/kv_store.hpp"
#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/error/error_cause.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::replay_detail {
namespace {

/// The library's error with what was tried for whom.
template <class E>
ReplayError failed(const char* operation,
                   std::uint64_t request,
                   std::uint64_t incarnation,
                   E error) {
  return {ReplayError::Kind(ExecutionFailed{
              .operation = operation, .request = request, .incarnation = incarnation}),
          ErrorCause::of(std::move(error))};
}

Result<void, ReplayError> outcome(const char* operation,
                                  const Sequence& sequence,
                                  KvStore::Outcome done) {
  if (!done) {
    return fail(failed(operation, sequence.request, sequence.incarnation, std::move(done).error()));
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
  auto store = make_store(policy, input, executor->holding_, executor->bench_);
  if (!store) {
    return fail(failed("set-up", 0, 0, std::move(store).error()));
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

void RealExecutor::observe(Bytes committed) {
  bench_.observe(committed);
}

Result<void, ReplayError> RealExecutor::end() {
  bench_.sample_kernel();
  MEMSTRATA_TRY_VOID(outcome("the last release", Sequence{}, store_->clear()));
  const auto worked = steady_clock().now() - start_ - bench_.idle_time();
  bench_.end();
  return bench_.write_recording(worked);
}

ExecutionFigures RealExecutor::figures() {
  return bench_.figures();
}

}  // namespace memstrata::replay_detail
