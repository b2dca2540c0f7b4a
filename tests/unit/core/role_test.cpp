// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/role.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <set>

namespace memstrata {
namespace {

TEST(MemoryRole, EqualityAndHashIncludeStepScoped) {
  const MemoryRole scoped = MemoryRole::workspace(true);
  const MemoryRole lasting = MemoryRole::workspace(false);
  const std::hash<MemoryRole> hash;

  EXPECT_NE(scoped, lasting);
  EXPECT_EQ(scoped, MemoryRole::workspace(true));
  EXPECT_NE(hash(scoped), hash(lasting));
  EXPECT_EQ(hash(scoped), hash(MemoryRole::workspace(true)));
  EXPECT_EQ(scoped.kind(), lasting.kind());
  EXPECT_TRUE(scoped.is_step_scoped());
}

TEST(MemoryRole, EachKindHasItsNameAndOnlyWorkspaceIsScoped) {
  EXPECT_EQ(to_string(MemoryRole::kv_cache), "kv_cache");
  EXPECT_EQ(to_string(MemoryRole::weights), "weights");
  EXPECT_EQ(to_string(MemoryRole::activation), "activation");
  EXPECT_EQ(to_string(MemoryRole::workspace(false)), "workspace");
  EXPECT_EQ(to_string(MemoryRole::workspace(true)), "workspace(step_scoped)");
  EXPECT_FALSE(MemoryRole::kv_cache.is_step_scoped());
  EXPECT_FALSE(MemoryRole::weights.is_step_scoped());
  EXPECT_FALSE(MemoryRole::activation.is_step_scoped());
}

TEST(MemoryRole, NoTwoRolesShareAHash) {
  const std::array roles{MemoryRole::kv_cache,
                         MemoryRole::workspace(false),
                         MemoryRole::workspace(true),
                         MemoryRole::weights,
                         MemoryRole::activation};
  std::set<std::size_t> hashes;

  for (const MemoryRole role : roles) {
    hashes.insert(std::hash<MemoryRole>{}(role));
  }

  EXPECT_EQ(hashes.size(), roles.size());
}

TEST(MemoryRole, KindsAreDifferentRoles) {
  EXPECT_NE(MemoryRole::kv_cache, MemoryRole::weights);
  EXPECT_NE(MemoryRole::weights, MemoryRole::activation);
  EXPECT_NE(MemoryRole::activation, MemoryRole::workspace(false));
}

}  // namespace
}  // namespace memstrata
