// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/error_cause.hpp"

#include <gtest/gtest.h>

#include <string>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"

namespace memstrata {
namespace {

TEST(ErrorCause, ComesBackAsTheTypeThatWasPutIn) {
  const ErrorCause cause = ErrorCause::of(VirtualMemoryError(AlreadyMapped{.offset = 4_KiB}));

  const auto* below = cause.target<VirtualMemoryError>();

  ASSERT_NE(below, nullptr);
  EXPECT_EQ(std::get<AlreadyMapped>(below->kind).offset, 4_KiB);
  EXPECT_EQ(cause.target<MemoryError>(), nullptr);
  EXPECT_EQ(cause.message(), below->message());
}

TEST(ErrorCause, CopiesShareTheCause) {
  const ErrorCause first = ErrorCause::of(VirtualMemoryError(NotMapped{.offset = 1_B}));
  const ErrorCause second =
      first;  // NOLINT(performance-unnecessary-copy-initialization): the claim

  EXPECT_EQ(first.target<VirtualMemoryError>(), second.target<VirtualMemoryError>());
}

TEST(ErrorCause, AnEmptyOneHasNoTargetAndNoText) {
  const ErrorCause none;

  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.target<MemoryError>(), nullptr);
  EXPECT_EQ(none.message(), "");
}

}  // namespace
}  // namespace memstrata
