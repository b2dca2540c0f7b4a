// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/error_text.hpp"

#include <gtest/gtest.h>

#include <string>

#include <string>

namespace memstrata {
namespace {

TEST(ErrorText, RefersToALiteral) {
  const ErrorText text("too many");

  EXPECT_EQ(text.view(), "too many");
  EXPECT_FALSE(text.empty());
  EXPECT_TRUE(ErrorText{}.empty());
}

TEST(ErrorText, ACopiedTextOutlivesItsSourceAndIsSharedByCopies) {
  ErrorText outer;
  {
    std::string source = "a text that is too long to be stored inside a small string object";
    const ErrorText inner = ErrorText::copy(source);
    source.assign(source.size(), 'x');
    outer = inner;
    EXPECT_EQ(outer.view().data(), inner.view().data());
  }

  EXPECT_EQ(outer.view(), "a text that is too long to be stored inside a small string object");
}

}  // namespace
}  // namespace memstrata
