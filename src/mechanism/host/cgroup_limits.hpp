// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "memstrata/mechanism/host/host_limits.hpp"

namespace memstrata::host::detail {

/// Every level of control groups that can limit the memory of this process, own group first: version 2 and a
/// version 1 memory controller, since both may be mounted. Levels without a limit file are left out.
[[nodiscard]] std::vector<CgroupLevel> read_cgroups(const std::string& root);

/// The files of a level.
[[nodiscard]] std::string limit_file(const CgroupLevel& level);
[[nodiscard]] std::string usage_file(const CgroupLevel& level);

}  // namespace memstrata::host::detail
