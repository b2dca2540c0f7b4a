// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/virtual_buffer_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"

namespace memstrata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

static_assert(!std::is_copy_constructible_v<VirtualBufferError>);
static_assert(std::is_nothrow_move_constructible_v<VirtualBufferError>);

TEST(VirtualBufferErrorMessage, ErrorsFromBelowAndAboveAreUnchanged) {
  const VirtualBufferError memory = VirtualMemoryError(AlreadyMapped{.offset = 4096_B});
  const VirtualBufferError budget =
      MemoryError(InvalidRequest{.tier = Tier::host, .requested = 5_B, .reason = "overflow"});

  EXPECT_EQ(memory.message(), VirtualMemoryError(AlreadyMapped{.offset = 4096_B}).message());
  EXPECT_EQ(budget.message(),
            MemoryError(InvalidRequest{.tier = Tier::host, .requested = 5_B, .reason = "overflow"})
                .message());
}

// B-107
TEST(VirtualBufferErrorMessage, OverCapacityNamesBothNumbersAndALargerCapacity) {
  const VirtualBufferError error = OverCapacity{.requested = 70001_B, .capacity = 65536_B};

  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("70001"),
                    HasSubstr("65536"),
                    HasSubstr("cannot be extended"),
                    HasSubstr("larger capacity")));
}

// B-100
TEST(VirtualBufferErrorMessage, AnAuthorityMismatchNamesBothAndThatTheyMustBeTheSame) {
  const VirtualBufferError error =
      AuthorityMismatch{.backing = {.device = DeviceKey::device(3), .serial = 17},
                        .governor = {.device = DeviceKey::host(), .serial = 23}};

  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("device:3 authority 17"),
                    HasSubstr("host:0 authority 23"),
                    HasSubstr("must be the same")));
}

}  // namespace
}  // namespace memstrata
