// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/replay_error.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <initializer_list>
#include <string>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_cause.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"

namespace memstrata {
namespace {

void expect_parts(const ReplayError& error, std::initializer_list<const char*> parts) {
  const std::string message = error.message();
  for (const char* part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

TEST(ReplayErrorMessage, NamesTheModelsThatExist) {
  expect_parts(UnknownModel{.name = "llama-9", .known = "Llama-3-8B, SmolLM2-135M"},
               {"'llama-9'", "Llama-3-8B, SmolLM2-135M", "kv-heads"});
}

TEST(ReplayErrorMessage, NamesFieldValueAndWhatWasExpected) {
  expect_parts(BadGeometry{.field = "layers", .value = 0, .expected = "1 to 65536"},
               {"layers", " 0", "1 to 65536"});
  expect_parts(
      BadReplayOption{.option = "context", .value = "12", .expected = "at least 20 tokens"},
      {"context", "'12'", "at least 20 tokens"});
}

TEST(ReplayErrorMessage, NamesTheColumnOfACondition) {
  expect_parts(BadCondition{.text = "wait_p99<5s", .column = 9, .expected = "<="},
               {"'wait_p99<5s'", "column 9", "expected <=", "'preempted<=0'"});
}

TEST(ReplayErrorMessage, NamesTheRemedyOfWhatCannotRun) {
  expect_parts(EmptySelection{}, {"no request", "at least one"});
  expect_parts(PolicyNeedsSimulation{.policy = "concat"}, {"concat", "backing sim"});
}

// A failed execution ends with the sentence of its cause, whose type stays reachable.
TEST(ReplayErrorMessage, EndsWithTheCause) {
  const ReplayError error(
      ReplayError::Kind(ExecutionFailed{.operation = "growth", .request = 12, .incarnation = 1}),
      ErrorCause::of(VirtualMemoryError(AlreadyMapped{.offset = Bytes{4'096}})));

  expect_parts(error, {"growth", "request 12", "incarnation 1", "4096"});
  EXPECT_NE(error.cause.target<VirtualMemoryError>(), nullptr);
}

TEST(ReplayErrorMessage, NamesFileLineAndCode) {
  expect_parts(RecordingFailed{.path = "calls.txt", .operation = "opening", .code = ENOENT},
               {"opening", "'calls.txt'", "No such file", "errno 2"});
  expect_parts(BadRecording{.path = "calls.txt", .line = 7, .expected = "a step"},
               {"'calls.txt'", "line 7", "a step"});
  expect_parts(RawCallFailed{.operation = "mmap", .line = 3, .code = ENOMEM},
               {"mmap", "line 3", "errno 12"});
}

// Input and options are the caller's; memory, files and system calls are the machine's.
TEST(ReplayErrorUsage, TellsInputFromMachine) {
  EXPECT_TRUE(ReplayError(EmptySelection{}).is_usage_error());
  EXPECT_TRUE(ReplayError(BadCondition{.text = "", .column = 1, .expected = ""}).is_usage_error());
  EXPECT_TRUE(ReplayError(BadRecording{.path = "f", .line = 1, .expected = "e"}).is_usage_error());
  EXPECT_FALSE(ReplayError(ExecutionFailed{.operation = "growth", .request = 0, .incarnation = 0})
                   .is_usage_error());
  EXPECT_FALSE(ReplayError(RecordingFailed{.path = "f", .operation = "opening", .code = 1})
                   .is_usage_error());
  EXPECT_FALSE(
      ReplayError(RawCallFailed{.operation = "mmap", .line = 1, .code = 1}).is_usage_error());
}

}  // namespace
}  // namespace memstrata
