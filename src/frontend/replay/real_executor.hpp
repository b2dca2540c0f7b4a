// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "frontend/replay/executor.hpp"
#include "frontend/replay/holding.hpp"
#include "frontend/replay/kv_memory.hpp"
#include "frontend/replay/kv_store.hpp"
#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::replay_detail {

/// Carries out the engine's decisions in real memory, under a real budget, and checks the content before it goes.
class RealExecutor final : public ReplayExecutor {
 public:
  /// `input` and `options` outlive it; `options` were checked and have a limit. `calls` is the kernel or a double.
  /// Errors: ExecutionFailed.
  [[nodiscard]] static Result<std::unique_ptr<RealExecutor>, ReplayError> create(
      const ReplayInput& input,
      const ReplayOptions& options,
      ReplayPolicy policy,
      std::shared_ptr<host::SystemCalls> calls);

  [[nodiscard]] Result<void, ReplayError> admit(const AdmitStep& step) override;
  [[nodiscard]] Result<void, ReplayError> grow(const GrowStep& step) override;
  [[nodiscard]] Result<void, ReplayError> finish(std::uint64_t request) override;
  [[nodiscard]] Result<void, ReplayError> preempt(std::uint64_t request) override;
  [[nodiscard]] Result<void, ReplayError> evict(BlockIndex block) override;
  Bytes end_step() override;
  Bytes observe(Bytes committed) override;

  [[nodiscard]] bool is_device_lost() const noexcept override { return memory_->is_device_lost(); }

  [[nodiscard]] Result<void, ReplayError> end() override;
  [[nodiscard]] ExecutionFigures figures() override;

  /// The budget of the run; it may outlive the executor.
  [[nodiscard]] const std::shared_ptr<MemoryGovernor>& governor() const noexcept {
    return bench_.governor();
  }

 private:
  RealExecutor(const ReplayInput& input,
               const ReplayOptions& options,
               ReplayPolicy policy,
               std::shared_ptr<host::SystemCalls> calls);

  void check(const Sequence& sequence);

  Holding holding_;
  bool verify_;
  std::chrono::nanoseconds start_;
  Workbench bench_;
  std::unique_ptr<KvMemory> memory_;
  std::unique_ptr<KvStore> store_;  // after the memory: its owners go first
  std::unordered_map<std::uint64_t, Sequence> sequences_;
};

}  // namespace memstrata::replay_detail
