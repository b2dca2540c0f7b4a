// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/replay_error.hpp"

#include <fmt/format.h>

#include <string>
#include <system_error>
#include <variant>

namespace memstrata {
namespace {

std::string reason(int code) {
  return fmt::format("{} (errno {})", std::generic_category().message(code), code);
}

std::string sentence(const UnknownModel& error) {
  return fmt::format(
      "no model is called '{}'; known are {}, or describe yours with layers, kv-heads and head-dim",
      error.name.view(),
      error.known.view());
}

std::string sentence(const BadGeometry& error) {
  return fmt::format(
      "the geometry's {} is {}; expected {}", error.field, error.value, error.expected.view());
}

std::string sentence(const BadReplayOption& error) {
  return fmt::format("the option {} is '{}'; expected {}",
                     error.option,
                     error.value.view(),
                     error.expected.view());
}

std::string sentence(const BadCondition& error) {
  return fmt::format(
      "the condition '{}' cannot be read at column {}: expected {}, as in 'wait_p99<=5s', "
      "'preempted<=0' or 'refused<=0'",
      error.text.view(),
      error.column,
      error.expected.view());
}

std::string sentence(const EmptySelection& /*error*/) {
  return "there is no request to replay; select at least one";
}

std::string sentence(const PolicyNeedsSimulation& error) {
  return fmt::format("the policy {} runs in the simulation only; choose the backing sim",
                     error.policy);
}

std::string sentence(const ExecutionFailed& error) {
  return fmt::format(
      "{} failed on real memory for request {} (incarnation {}); everything was given back",
      error.operation,
      error.request,
      error.incarnation);
}

std::string sentence(const RecordingFailed& error) {
  return fmt::format("{} of the recording '{}' failed: {}",
                     error.operation,
                     error.path.view(),
                     reason(error.code));
}

std::string sentence(const BadRecording& error) {
  return fmt::format("the recording '{}' is damaged at line {}: expected {}",
                     error.path.view(),
                     error.line,
                     error.expected.view());
}

std::string sentence(const RawCallFailed& error) {
  return fmt::format(
      "{} of line {} of the recording was refused now: {}; give the machine the memory that it had "
      "when the recording was made",
      error.operation,
      error.line,
      reason(error.code));
}

}  // namespace

std::string ReplayError::message() const {
  std::string text =
      std::visit([](const auto& alternative) { return sentence(alternative); }, kind);
  if (!cause.empty()) {
    text += ": " + cause.message();
  }
  return text;
}

bool ReplayError::is_usage_error() const noexcept {
  return !std::holds_alternative<ExecutionFailed>(kind) &&
         !std::holds_alternative<RecordingFailed>(kind) &&
         !std::holds_alternative<RawCallFailed>(kind);
}

}  // namespace memstrata
