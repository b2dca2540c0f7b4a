// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/replay/raw_replay.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/replay/call_recorder.hpp"
#include "frontend/replay/kv_pattern.hpp"
#include "frontend/replay/recording_format.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata {
namespace {

using replay_detail::RecordedStep;

constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

/// A step whose addresses and descriptors are named by the mapping and the file they belong to, so that executing
/// it is an addition.
struct RawStep {
  RecordedStep step{};
  std::size_t line = 0;
  std::size_t target = nowhere;  ///< Mapping of `call.address` or `to`.
  std::size_t source = nowhere;  ///< Mapping of `from`.
  std::size_t file = nowhere;    ///< File of `call.descriptor`.
  std::size_t made = nowhere;    ///< Mapping or file that the step makes.
};

/// A list that is ready to run.
struct RawList {
  std::vector<RawStep> steps;
  std::size_t mappings = 0;
  std::size_t files = 0;
  replay_detail::RecordingSummary summary;
};

/// Gives numbers to the mappings and files of a recording, in the order in which they come and go.
class Resolver {
 public:
  /// Fills in the numbers; false if the step refers to what is not there.
  [[nodiscard]] bool resolve(RawStep& raw) {
    const RecordedStep& step = raw.step;
    switch (step.kind) {
      case RecordedStep::Kind::fill:
        raw.target = mapping_of(step.to, step.size.value);
        return raw.target != nowhere;
      case RecordedStep::Kind::copy:
        raw.target = mapping_of(step.to, step.size.value);
        raw.source = mapping_of(step.from, step.size.value);
        return raw.target != nowhere && raw.source != nowhere;
      case RecordedStep::Kind::call:
        return resolve_call(raw);
    }
    std::unreachable();
  }

  [[nodiscard]] std::size_t mappings() const noexcept { return mappings_; }

  [[nodiscard]] std::size_t files() const noexcept { return files_; }

 private:
  struct Mapping {
    std::uint64_t length;
    std::size_t number;
  };

  [[nodiscard]] bool resolve_call(RawStep& raw) {
    const host::SystemCall& call = raw.step.call;
    if (!resolve_file(raw)) {
      return false;
    }
    switch (call.kind) {
      case host::SystemCallKind::map:
        if (call.placement == host::Placement::anywhere) {
          raw.made = mappings_++;
          live_.insert_or_assign(raw.step.answer,
                                 Mapping{.length = call.length, .number = raw.made});
          return true;
        }
        raw.target = mapping_of(call.address, call.length);
        return raw.target != nowhere;
      case host::SystemCallKind::unmap: {
        const auto found = live_.find(call.address);
        if (found == live_.end() || found->second.length != call.length) {
          return false;
        }
        raw.target = found->second.number;
        live_.erase(found);
        return true;
      }
      case host::SystemCallKind::protect:
      case host::SystemCallKind::advise:
      case host::SystemCallKind::read_file:
        raw.target = mapping_of(call.address, call.length);
        return raw.target != nowhere;
      case host::SystemCallKind::create_file:
      case host::SystemCallKind::reopen_read_only:
        raw.made = files_++;
        open_.insert_or_assign(static_cast<std::int32_t>(raw.step.answer), raw.made);
        return true;
      case host::SystemCallKind::close_file:
        open_.erase(call.descriptor);
        return true;
      case host::SystemCallKind::resize_file:
      case host::SystemCallKind::seal_file:
      case host::SystemCallKind::punch_hole:
      case host::SystemCallKind::file_bytes:
      case host::SystemCallKind::raise_descriptor_limit:
        return true;
    }
    std::unreachable();
  }

  [[nodiscard]] bool resolve_file(RawStep& raw) const {
    const host::SystemCall& call = raw.step.call;
    const bool needs_file = call.kind == host::SystemCallKind::resize_file ||
                            call.kind == host::SystemCallKind::seal_file ||
                            call.kind == host::SystemCallKind::punch_hole ||
                            call.kind == host::SystemCallKind::reopen_read_only ||
                            call.kind == host::SystemCallKind::close_file ||
                            call.kind == host::SystemCallKind::read_file ||
                            call.kind == host::SystemCallKind::file_bytes ||
                            (call.kind == host::SystemCallKind::map && call.descriptor >= 0);
    if (!needs_file) {
      return true;
    }
    const auto found = open_.find(call.descriptor);
    if (found == open_.end()) {
      return false;
    }
    raw.file = found->second;
    return true;
  }

  [[nodiscard]] std::size_t mapping_of(std::uint64_t address, std::uint64_t length) const {
    auto found = live_.upper_bound(address);
    if (found == live_.begin()) {
      return nowhere;
    }
    --found;
    const std::uint64_t inside = address - found->first;
    return inside <= found->second.length && length <= found->second.length - inside
               ? found->second.number
               : nowhere;
  }

  std::map<std::uint64_t, Mapping> live_;
  std::map<std::int32_t, std::size_t> open_;
  std::size_t mappings_ = 0;
  std::size_t files_ = 0;
};

ReplayError bad_line(const std::string& path, std::size_t line, const char* expected) {
  return BadRecording{.path = ErrorText::copy(path),
                      .line = line,
                      .expected = ErrorText::copy(std::string_view(expected))};
}

Result<RawList, ReplayError> load(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return fail(ReplayError(
        RecordingFailed{.path = ErrorText::copy(path), .operation = "opening", .code = errno}));
  }
  RawList list;
  Resolver resolver;
  std::string text;
  std::size_t line = 1;
  if (!std::getline(file, text) || text != replay_detail::recording_header) {
    return fail(bad_line(path, line, "the header 'memstrata-replay-calls 1'"));
  }
  while (std::getline(file, text)) {
    ++line;
    if (const auto summary = replay_detail::parse_summary(text)) {
      if (summary->steps != list.steps.size() || file.peek() != std::ifstream::traits_type::eof()) {
        return fail(bad_line(path, line, "as many steps as the last line counts"));
      }
      list.summary = summary->summary;
      list.mappings = resolver.mappings();
      list.files = resolver.files();
      return list;
    }
    const auto step = replay_detail::parse_step(text);
    if (!step) {
      return fail(bad_line(path, line, "a step 's', 'f' or 'c', or the end 'e'"));
    }
    RawStep raw{.step = *step, .line = line};
    if (!resolver.resolve(raw)) {
      return fail(bad_line(path, line, "an address and a descriptor that earlier lines made"));
    }
    list.steps.push_back(raw);
  }
  return fail(bad_line(path, line + 1, "the end 'e': the file is cut off"));
}

/// Executes a list; what is left at the end, or after a failure, is given back.
class RawRunner {
 public:
  explicit RawRunner(const RawList& list)
      : calls_(host::real_system_calls()), places_(list.mappings), files_(list.files, -1) {}

  RawRunner(const RawRunner&) = delete;
  RawRunner& operator=(const RawRunner&) = delete;
  RawRunner(RawRunner&&) = delete;
  RawRunner& operator=(RawRunner&&) = delete;

  ~RawRunner() {
    for (const Place& place : places_) {
      if (place.base != 0) {
        static_cast<void>(calls_->execute(
            {.kind = host::SystemCallKind::unmap, .address = place.base, .length = place.length}));
      }
    }
    for (const std::int32_t file : files_) {
      if (file >= 0) {
        static_cast<void>(
            calls_->execute({.kind = host::SystemCallKind::close_file, .descriptor = file}));
      }
    }
  }

  /// 0, or the `errno` of a call that was refused.
  [[nodiscard]] int run(const RawStep& raw, RawReplay& result) {
    const RecordedStep& step = raw.step;
    switch (step.kind) {
      case RecordedStep::Kind::fill:
        ++result.fills;
        result.filled += step.size;
        result.checksum += replay_detail::fill_rows(step.owner,
                                                    step.row,
                                                    {.offset = step.offset, .size = step.size},
                                                    at(raw.target, step.to));
        return 0;
      case RecordedStep::Kind::copy:
        ++result.fills;
        result.filled += step.size;
        std::memcpy(at(raw.target, step.to), at(raw.source, step.from), step.size.value);
        return 0;
      case RecordedStep::Kind::call:
        ++result.calls;
        return run_call(raw);
    }
    std::unreachable();
  }

 private:
  struct Place {
    std::uint64_t base = 0;  ///< 0: not mapped.
    std::uint64_t length = 0;
    std::uint64_t shift = 0;  ///< Added to recorded addresses, wrapping.
  };

  [[nodiscard]] std::byte* at(std::size_t mapping, std::uint64_t recorded) const noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): recorded addresses are numbers
    return reinterpret_cast<std::byte*>(
        static_cast<std::uintptr_t>(recorded + places_[mapping].shift));
  }

  [[nodiscard]] int run_call(const RawStep& raw) {
    host::SystemCall call = raw.step.call;
    if (raw.target != nowhere) {
      call.address += places_[raw.target].shift;
    }
    if (raw.file != nowhere) {
      call.descriptor = files_[raw.file];
    }
    if (call.kind == host::SystemCallKind::map && raw.made != nowhere) {
      return map_again(call, raw);
    }
    const host::SystemResult result = calls_->execute(call);
    if (!result.is_ok()) {
      return result.error;
    }
    if (call.kind == host::SystemCallKind::unmap) {
      places_[raw.target] = Place{};
    } else if (call.kind == host::SystemCallKind::close_file) {
      files_[raw.file] = -1;
    } else if (raw.made != nowhere) {
      files_[raw.made] = static_cast<std::int32_t>(result.value);
    }
    return 0;
  }

  /// At the recorded address if it is free, so that alignment to huge pages is the same.
  [[nodiscard]] int map_again(host::SystemCall call, const RawStep& raw) {
    call.placement = host::Placement::if_vacant;
    call.address = raw.step.answer;
    host::SystemResult result = calls_->execute(call);
    if (!result.is_ok()) {
      call.placement = host::Placement::anywhere;
      result = calls_->execute(call);
    }
    if (result.is_ok()) {
      places_[raw.made] = {
          .base = result.value, .length = call.length, .shift = result.value - raw.step.answer};
    }
    return result.error;
  }

  std::shared_ptr<host::SystemCalls> calls_;
  std::vector<Place> places_;
  std::vector<std::int32_t> files_;
};

}  // namespace

Result<RawReplay, ReplayError> run_raw_replay(const std::string& path) {
  MEMSTRATA_TRY(const RawList list, load(path));
  RawReplay result;
  result.recorded = list.summary.wall;
  RawRunner runner(list);
  const auto start = steady_clock().now();
  for (const RawStep& raw : list.steps) {
    if (const int code = runner.run(raw, result); code != 0) {
      return fail(ReplayError(RawCallFailed{
          .operation = host::function_name(raw.step.call.kind), .line = raw.line, .code = code}));
    }
  }
  result.wall = steady_clock().now() - start;
  if (result.checksum != list.summary.checksum) {
    return fail(bad_line(path, list.steps.size() + 2, "the checksum of the fills"));
  }
  return result;
}

}  // namespace memstrata
