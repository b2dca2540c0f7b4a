// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// What is made to happen to a release.
enum class ReleaseFault : std::uint8_t {
  fail,    ///< Nothing is given back, and the mechanism says so.
  midway,  ///< About half of the private bytes is given back, then no more. Falls on the first release, from the one
           ///< that was asked on, of a buffer or pool with at least two private granules.
  lose,    ///< The device is lost while the release is queued; the run ends there.
};

/// The stable name: `fail`, `midway`, `lose`.
[[nodiscard]] std::string_view to_string(ReleaseFault fault) noexcept;

/// `fault` happens to the release of that number.
struct ReleaseInjection {
  ReleaseFault fault;
  std::uint64_t release;  ///< Counted from 1, in the order in which releases are queued.

  friend bool operator==(const ReleaseInjection&, const ReleaseInjection&) = default;
};

/// Reads `fail:3`, `midway:10,lose:40`; blanks are allowed around every part, and letters may be of any case.
/// Errors: BadReplayOption with what was expected, also for a number that is 0 or named twice.
[[nodiscard]] Result<std::vector<ReleaseInjection>, ReplayError> parse_release_injections(
    std::string_view text);

}  // namespace memstrata
