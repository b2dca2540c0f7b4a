// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_cause.hpp"
#include "memstrata/core/error/error_text.hpp"

namespace memstrata {

/// No geometry has this name.
struct UnknownModel {
  ErrorText name;
  ErrorText known;  ///< The names that exist, separated by commas.
};

/// A figure of the geometry makes no sense.
struct BadGeometry {
  const char* field;  ///< As the option is called, without dashes in front.
  std::uint64_t value;
  ErrorText expected;
};

/// An option of the replay makes no sense.
struct BadReplayOption {
  const char* option;  ///< As the option is called, without dashes in front.
  ErrorText value;
  ErrorText expected;
};

/// A condition of the search for a limit cannot be read. `column` counts from 1.
struct BadCondition {
  ErrorText text;
  std::uint64_t column;
  ErrorText expected;
};

/// There is no request to replay.
struct EmptySelection {};

/// The policy cannot be run on real memory.
struct PolicyNeedsSimulation {
  const char* policy;
};

/// A call on real memory failed; the library's typed error is the cause. Everything was given back.
struct ExecutionFailed {
  const char* operation;
  std::uint64_t request;      ///< Number of the request in the selection, from 0.
  std::uint64_t incarnation;  ///< How often it had been preempted before.
};

/// A file of recorded calls cannot be written or read.
struct RecordingFailed {
  ErrorText path;
  const char* operation;
  int code;  ///< `errno`.
};

/// A file of recorded calls is damaged or not one. `line` counts from 1.
struct BadRecording {
  ErrorText path;
  std::uint64_t line;
  ErrorText expected;
};

/// Executing a recording: a system call that had succeeded was refused.
struct RawCallFailed {
  const char* operation;
  std::uint64_t line;
  int code;  ///< `errno`.
};

/// Why a replay was refused or stopped. Closed; movable, not copyable.
class ReplayError {
 public:
  using Kind = std::variant<UnknownModel,
                            BadGeometry,
                            BadReplayOption,
                            BadCondition,
                            EmptySelection,
                            PolicyNeedsSimulation,
                            ExecutionFailed,
                            RecordingFailed,
                            BadRecording,
                            RawCallFailed>;

  template <class Alternative>
    requires std::constructible_from<Kind, Alternative&&>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): an alternative is an error
  ReplayError(Alternative&& alternative) noexcept : kind(std::forward<Alternative>(alternative)) {}

  ReplayError(Kind alternative, ErrorCause below) noexcept
      : kind(std::move(alternative)), cause(std::move(below)) {}

  ReplayError(ReplayError&&) noexcept = default;
  ReplayError& operator=(ReplayError&&) noexcept = default;
  ReplayError(const ReplayError&) = delete;
  ReplayError& operator=(const ReplayError&) = delete;
  ~ReplayError() = default;

  /// One sentence with the numbers and the remedy; a failed execution ends with its cause's own sentence.
  [[nodiscard]] std::string message() const;

  /// Whether the caller's input or options are at fault (exit status 2), not the machine (3).
  [[nodiscard]] bool is_usage_error() const noexcept;

  Kind kind;
  ErrorCause cause;
};

}  // namespace memstrata
