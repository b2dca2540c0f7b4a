// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <memory>

#include "memstrata/mechanism/host/system_calls.hpp"
#include "support/fault_script.hpp"

namespace memstrata::test {

/// The real kernel, except that chosen calls are refused with ENOMEM instead of being made. Operations for
/// `faults()` are the names of the functions: mmap, munmap, mprotect, madvise, ... Thread-safe.
class ScriptedSystemCalls final : public host::SystemCalls {
 public:
  [[nodiscard]] host::SystemResult execute(const host::SystemCall& call) noexcept override {
    if (faults_.must_fail(host::function_name(call.kind))) {
      return {.value = 0, .error = ENOMEM};
    }
    return real_->execute(call);
  }

  [[nodiscard]] FaultScript& faults() noexcept { return faults_; }

 private:
  FaultScript faults_;
  std::shared_ptr<host::SystemCalls> real_ = host::real_system_calls();
};

}  // namespace memstrata::test
