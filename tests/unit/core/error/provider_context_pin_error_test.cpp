// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/provider_context_pin_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"

namespace memstrata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

[[nodiscard]] ProviderContextIdentity a_context() {
  return IdentitySource(41).restore<ProviderContextIdentity>(57);
}

//
TEST(ProviderContextPinErrorMessage, AnUnavailableContextIsNamedWithItsLifecycle) {
  const ProviderContextPinError error = ContextUnavailable{
      .context = a_context(), .lifecycle = ProviderContextLifecycle::device_lost};

  EXPECT_EQ(error.context(), a_context());
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("provider context #57 of registry 41"),
                    HasSubstr("device lost"),
                    HasSubstr("do not queue")));
}

//
TEST(ProviderContextPinErrorMessage, AFullCountNamesTheContextAndWhatToDo) {
  const ProviderContextPinError error = PinCountOverflow{.context = a_context()};

  EXPECT_EQ(error.context(), a_context());
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("provider context #57 of registry 41"),
                    HasSubstr("as many pins as can be counted"),
                    HasSubstr("do not queue")));
}

//
TEST(ProviderContextPinErrorMessage, ALackOfMemoryNamesTheContextAndWhatToDo) {
  const ProviderContextPinError error = PinAllocationFailed{.context = a_context()};

  EXPECT_EQ(error.context(), a_context());
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("provider context #57 of registry 41"),
                    HasSubstr("no memory for a pin"),
                    HasSubstr("do not queue")));
}

}  // namespace
}  // namespace memstrata
