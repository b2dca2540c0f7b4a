// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace memstrata {
namespace {

std::string& last_text() {
  static std::string text;
  return text;
}

void keep(LogLevel /*level*/, std::string_view text) noexcept {
  last_text() = text;
}

void ignore(LogLevel /*level*/, std::string_view /*text*/) noexcept {}

/// Puts the sink back that was there before the test.
class LogSinkTest : public testing::Test {
 protected:
  LogSinkTest() : before_(set_log_sink(nullptr)) {}

  ~LogSinkTest() override { set_log_sink(before_); }

 private:
  LogSink before_;
};

TEST_F(LogSinkTest, IsAbsentByDefault) {
  EXPECT_EQ(log_sink(), nullptr);
}

TEST_F(LogSinkTest, EachSettingReturnsTheOneBefore) {
  EXPECT_EQ(set_log_sink(&keep), nullptr);
  EXPECT_EQ(set_log_sink(&ignore), &keep);

  EXPECT_EQ(log_sink(), &ignore);
  EXPECT_EQ(set_log_sink(nullptr), &ignore);
  EXPECT_EQ(log_sink(), nullptr);
}

TEST_F(LogSinkTest, GetsTheText) {
  set_log_sink(&keep);

  log_sink()(LogLevel::warning, "a message");

  EXPECT_EQ(last_text(), "a message");
}

}  // namespace
}  // namespace memstrata
