// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/lifecycle.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string_view>

namespace memstrata {
namespace {

template <class State, class Event>
struct Row {
  State from;
  Event event;
  std::optional<State> to;
};

//
TEST(MechanismLifecycle, EveryPairOfStateAndEventIsAsInTheTable) {
  using S = MechanismLifecycle;
  using E = MechanismEvent;
  constexpr std::array<Row<S, E>, 12> table{{
      {S::active, E::retire, S::retired},
      {S::active, E::invalidate_device, S::device_lost},
      {S::active, E::confirm_context_terminated, std::nullopt},
      {S::retired, E::retire, S::retired},
      {S::retired, E::invalidate_device, S::device_lost},
      {S::retired, E::confirm_context_terminated, std::nullopt},
      {S::device_lost, E::retire, S::device_lost},
      {S::device_lost, E::invalidate_device, S::device_lost},
      {S::device_lost, E::confirm_context_terminated, S::terminated},
      {S::terminated, E::retire, S::terminated},
      {S::terminated, E::invalidate_device, S::terminated},
      {S::terminated, E::confirm_context_terminated, std::nullopt},
  }};

  for (const auto& row : table) {
    EXPECT_EQ(next(row.from, row.event), row.to)
        << to_string(row.from) << " after event " << static_cast<int>(row.event);
  }
}

TEST(MechanismLifecycle, NothingLeadsBackToActive) {
  using S = MechanismLifecycle;
  using E = MechanismEvent;
  for (const S from : {S::active, S::retired, S::device_lost, S::terminated}) {
    for (const E event : {E::retire, E::invalidate_device, E::confirm_context_terminated}) {
      EXPECT_NE(next(from, event), S::active);
    }
  }
}

TEST(MechanismLifecycle, EveryStateHasAName) {
  using S = MechanismLifecycle;

  EXPECT_EQ(to_string(S::active), "active");
  EXPECT_EQ(to_string(S::retired), "retired");
  EXPECT_EQ(to_string(S::device_lost), "device lost");
  EXPECT_EQ(to_string(S::terminated), "terminated");
}

// W-12, X-040
TEST(ProviderContextLifecycle, EveryPairOfStateAndEventIsAsInTheTable) {
  using S = ProviderContextLifecycle;
  using E = ProviderContextEvent;
  constexpr std::array<Row<S, E>, 12> table{{
      {S::active, E::retire, S::retiring},
      {S::active, E::invalidate_device, S::device_lost},
      {S::active, E::confirm_context_terminated, std::nullopt},
      {S::retiring, E::retire, S::retiring},
      {S::retiring, E::invalidate_device, S::device_lost},
      {S::retiring, E::confirm_context_terminated, std::nullopt},
      {S::device_lost, E::retire, S::device_lost},
      {S::device_lost, E::invalidate_device, S::device_lost},
      {S::device_lost, E::confirm_context_terminated, S::terminated},
      {S::terminated, E::retire, S::terminated},
      {S::terminated, E::invalidate_device, S::terminated},
      {S::terminated, E::confirm_context_terminated, std::nullopt},
  }};

  for (const auto& row : table) {
    EXPECT_EQ(next(row.from, row.event), row.to)
        << to_string(row.from) << " after event " << static_cast<int>(row.event);
  }
}

TEST(ProviderContextLifecycle, EveryStateHasAName) {
  using S = ProviderContextLifecycle;

  EXPECT_EQ(to_string(S::active), "active");
  EXPECT_EQ(to_string(S::retiring), "retiring");
  EXPECT_EQ(to_string(S::device_lost), "device lost");
  EXPECT_EQ(to_string(S::terminated), "terminated");
}

TEST(MechanismCoherence, EveryKindHasAName) {
  EXPECT_EQ(to_string(MechanismCoherence::self_contained), "self-contained");
  EXPECT_EQ(to_string(MechanismCoherence::trusted_composite), "trusted composite");
}

}  // namespace
}  // namespace memstrata
