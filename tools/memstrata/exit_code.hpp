// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace memstrata::tool {

inline constexpr int exit_ok = 0;        ///< Done.
inline constexpr int exit_findings = 1;  ///< Done, and the check found something.
inline constexpr int exit_usage = 2;     ///< Wrong options or a file that cannot be understood.
inline constexpr int exit_could_not_run =
    3;  ///< Right options, but the machine did not let it run.

}  // namespace memstrata::tool
