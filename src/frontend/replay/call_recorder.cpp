// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/call_recorder.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "frontend/replay/recording_format.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::replay_detail {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const noexcept { static_cast<void>(std::fclose(file)); }
};

ReplayError recording_failed(const std::string& path, const char* operation, int code) {
  return RecordingFailed{.path = ErrorText::copy(path), .operation = operation, .code = code};
}

/// Lines are written in pieces of about this size.
constexpr std::size_t piece = std::size_t{1} << 20U;

}  // namespace

CallRecorder::CallRecorder(std::shared_ptr<host::SystemCalls> below) noexcept
    : below_(std::move(below)) {}

host::SystemResult CallRecorder::execute(const host::SystemCall& call) noexcept {
  const host::SystemResult result = below_->execute(call);
  if (result.is_ok() && !paused_.load(std::memory_order_relaxed)) {
    try {
      record({.kind = RecordedStep::Kind::call, .call = call, .answer = result.value});
    } catch (const std::exception&) {
      lost_.store(true, std::memory_order_relaxed);
    }
  }
  return result;
}

void CallRecorder::record(const RecordedStep& step) {
  const MutexLock lock(mutex_);
  steps_.push_back(step);
}

Result<void, ReplayError> CallRecorder::write(const std::string& path,
                                              const RecordingSummary& summary) {
  if (is_incomplete()) {
    return fail(recording_failed(path, "collecting the steps", ENOMEM));
  }
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "we"));
  if (file == nullptr) {
    return fail(recording_failed(path, "opening", errno));
  }
  const MutexLock lock(mutex_);
  std::string text = std::string(recording_header) + "\n";
  for (const RecordedStep& step : steps_) {
    append_line(text, step);
    if (text.size() >= piece) {
      if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) {
        return fail(recording_failed(path, "writing", errno));
      }
      text.clear();
    }
  }
  append_summary(text, summary, steps_.size());
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0) {
    return fail(recording_failed(path, "writing", errno));
  }
  return {};
}

}  // namespace memstrata::replay_detail
