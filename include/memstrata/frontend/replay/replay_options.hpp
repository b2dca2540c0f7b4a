// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/release_injection.hpp"

namespace memstrata {

/// A way of holding the KV of many sequences (R10).
enum class ReplayPolicy : std::uint8_t {
  reserve_max,  ///< One slot of the whole context per sequence, committed once and used again.
  realloc,      ///< Capacity doubles; old and new are held while the live bytes are copied.
  concat,       ///< A new block and a copy on every token; simulation only.
  paged,        ///< Blocks of 16 tokens behind a table; prefixes shared by reference.
  virtual_memory,  ///< Ours: one address range per sequence, granules committed as it grows, prefixes mapped.
};

/// Every policy, in the order of reports.
inline constexpr std::array all_replay_policies{ReplayPolicy::reserve_max,
                                                ReplayPolicy::realloc,
                                                ReplayPolicy::concat,
                                                ReplayPolicy::paged,
                                                ReplayPolicy::virtual_memory};

/// The stable name: `reserve-max`, `realloc`, `concat`, `paged`, `virtual`.
[[nodiscard]] std::string_view to_string(ReplayPolicy policy) noexcept;

/// The policy of that name, without regard to case, or nothing.
[[nodiscard]] std::optional<ReplayPolicy> parse_replay_policy(std::string_view name) noexcept;

/// Systems that hold KV in this way, for the report.
[[nodiscard]] std::string_view systems_of(ReplayPolicy policy) noexcept;

/// Where the bytes of a replay lie.
enum class ReplayBacking : std::uint8_t {
  sim,   ///< Nowhere: they are counted.
  real,  ///< In memory of this machine, through the library and under a budget.
};

/// The stable name: `sim` or `real`.
[[nodiscard]] std::string_view to_string(ReplayBacking backing) noexcept;

/// The backing of that name, without regard to case, or nothing.
[[nodiscard]] std::optional<ReplayBacking> parse_replay_backing(std::string_view name) noexcept;

/// What a replay is asked to do. A value; the defaults are those of the rules.
struct ReplayOptions {
  KvGeometry geometry;
  std::vector<ReplayPolicy> policies{ReplayPolicy::virtual_memory};
  ReplayBacking backing = ReplayBacking::sim;
  /// Budget of the host tier. Nothing: unlimited in the simulation; an error on real memory, because the caller
  /// knows the machine.
  std::optional<Bytes> limit;
  Bytes granule = 64_KiB;  ///< R14; a multiple of the page on real memory.
  std::optional<std::uint64_t> prefill_tps =
      10'000;                        ///< Tokens per second and request; nothing: infinite.
  std::uint64_t decode_tps = 20;     ///< Tokens per second and request, above 0.
  std::uint64_t context_tokens = 0;  ///< R13; 0: the largest input + output in the selection.
  std::optional<std::uint64_t>
      cache_blocks;     ///< R6: idle blocks kept at most; nothing: as many as fit.
  bool verify = false;  ///< Real memory only: read and check every byte before release.
  std::optional<std::uint64_t>
      corrupt_write;       ///< Flip one bit after this write, counted from 1; real memory only.
  std::uint64_t seed = 1;  ///< Of the pattern.
  /// What happens to releases; real memory only, and not in a run that is recorded.
  std::vector<ReleaseInjection> inject;
  std::string
      record_calls;  ///< File to which a real run writes its system calls and fills; empty: none.
};

/// `policies` without the ones that `backing` cannot run (concat on real memory): what `all` means.
[[nodiscard]] std::vector<ReplayPolicy> policies_for_all(ReplayBacking backing);

/// How far a replay is: called a bounded number of times per policy, from the thread that runs it.
using ReplayProgress =
    std::function<void(ReplayPolicy policy, std::uint64_t finished, std::uint64_t requests)>;

}  // namespace memstrata
