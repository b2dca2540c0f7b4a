// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/replay/release_injection.hpp"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "memstrata/core/error/replay_error.hpp"

namespace memstrata::test {
namespace {

using Injections = std::vector<ReleaseInjection>;

TEST(ReleaseInjections, AreReadWithBlanksAndInAnyCase) {
  EXPECT_EQ(parse_release_injections("fail:3").value(),
            (Injections{{.fault = ReleaseFault::fail, .release = 3}}));
  EXPECT_EQ(parse_release_injections(" Midway : 10 , lose:18446744073709551615").value(),
            (Injections{{.fault = ReleaseFault::midway, .release = 10},
                        {.fault = ReleaseFault::lose, .release = 18446744073709551615U}}));
}

TEST(ReleaseInjections, HaveNamesThatAreReadAgain) {
  for (const ReleaseFault fault : {ReleaseFault::fail, ReleaseFault::midway, ReleaseFault::lose}) {
    const auto read = parse_release_injections(std::string(to_string(fault)) + ":7").value();
    EXPECT_EQ(read.front().fault, fault);
  }
}

TEST(ReleaseInjections, AreRefusedWithThePartAndTheForm) {
  for (const char* text : {"",
                           "fail",
                           "fail:",
                           ":3",
                           "fails:3",
                           "fail:0",
                           "fail:-1",
                           "fail:3x",
                           "fail:18446744073709551616",
                           "fail:3,",
                           ",fail:3",
                           "fail:3;lose:4",
                           "fail:3,lose:3"}) {
    const auto read = parse_release_injections(text);
    ASSERT_FALSE(read.has_value()) << text;
    const auto* refused = std::get_if<BadReplayOption>(&read.error().kind);
    ASSERT_NE(refused, nullptr);
    EXPECT_STREQ(refused->option, "inject");
    EXPECT_TRUE(read.error().is_usage_error());
  }
  EXPECT_NE(parse_release_injections("lose:2,fail:x").error().message().find("fail:x"),
            std::string::npos);
}

}  // namespace
}  // namespace memstrata::test
