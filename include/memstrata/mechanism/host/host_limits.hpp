// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"

namespace memstrata::host {

/// One figure of the system: a value, "no limit", or unknown with the reason. Unknown is never 0.
/// Thread-compatible.
class Figure {
 public:
  enum class State : std::uint8_t { known, unlimited, unknown };

  /// Nothing was asked yet.
  Figure() : reason_("not read") {}

  [[nodiscard]] static Figure known(std::uint64_t value, std::string source) {
    return {State::known, value, std::move(source), {}};
  }

  [[nodiscard]] static Figure unlimited(std::string source) {
    return {State::unlimited, 0, std::move(source), {}};
  }

  [[nodiscard]] static Figure unknown(std::string source, std::string reason) {
    return {State::unknown, 0, std::move(source), std::move(reason)};
  }

  [[nodiscard]] State state() const noexcept { return state_; }

  /// The number, or nothing if there is no limit or it is unknown.
  [[nodiscard]] std::optional<std::uint64_t> value() const noexcept {
    return state_ == State::known ? std::optional(value_) : std::nullopt;
  }

  /// Where it was read: a file or a call.
  [[nodiscard]] const std::string& source() const noexcept { return source_; }

  /// Why it is unknown; else empty.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  Figure(State state, std::uint64_t value, std::string source, std::string reason)
      : state_(state), value_(value), source_(std::move(source)), reason_(std::move(reason)) {}

  State state_ = State::unknown;
  std::uint64_t value_ = 0;
  std::string source_;
  std::string reason_;
};

/// A word of the system, such as a huge-page mode, and where it was read.
struct Setting {
  std::optional<std::string> value;
  std::string source;
  std::string reason;  ///< Why there is no value; else empty.
};

/// One pool of explicit huge pages.
struct HugePagePool {
  Bytes page;
  Figure pages;       ///< Pages in the pool.
  Figure free_pages;  ///< Of these, unused.
  Figure overcommit;  ///< Pages that may be added on demand.
};

/// One level of a control group that can limit memory, from the process's own group up to the root.
struct CgroupLevel {
  int version;        ///< 1 or 2.
  std::string path;   ///< Directory of the group.
  Figure limit;       ///< Bytes: `memory.max` or `memory.limit_in_bytes`.
  Figure soft_limit;  ///< Bytes: `memory.high`; crossing it throttles. Version 2 only.
  Figure usage;       ///< Bytes used now.
};

/// Everything that bounds the host tier, as read at one time. Sizes in bytes, counts as counts.
struct HostLimits {
  Figure page_size;
  Figure huge_page_size;
  Setting huge_pages;  ///< `always`, `madvise` or `never`.
  Setting huge_pages_defrag;
  Setting huge_pages_shared;  ///< The same for shared memory.
  std::vector<HugePagePool> pools;

  Figure memory_total;
  Figure memory_available;
  std::vector<CgroupLevel> cgroups;

  Figure address_space;     ///< `RLIMIT_AS`.
  Figure data;              ///< `RLIMIT_DATA`.
  Figure locked_memory;     ///< `RLIMIT_MEMLOCK`.
  Figure descriptors;       ///< `RLIMIT_NOFILE`, soft.
  Figure descriptors_hard;  ///< `RLIMIT_NOFILE`, hard.
  Figure mappings;          ///< `vm.max_map_count`.
  Figure overcommit_mode;   ///< `vm.overcommit_memory`.
  Figure address_bits;      ///< Bits of a virtual address.

  /// The least of total memory and every group's limit.
  [[nodiscard]] Figure effective_limit() const;
  /// The least soft limit, or no limit.
  [[nodiscard]] Figure soft_limit() const;
  /// Room now: the least of available memory and of limit minus usage of every group.
  [[nodiscard]] Figure room() const;
  /// The default size of the host tier: the least of 75 % of the effective limit, the soft limit, and 90 % of
  /// the room now. Source: chosen so that page cache and the rest of the process keep a share; docs/decisions.md.
  [[nodiscard]] Figure default_tier() const;
};

/// Reads every limit. `root` stands in front of `/proc` and `/sys`, for tests; resource limits come from the
/// process. Never fails: what cannot be read is unknown, with the reason. Cost: some 100 µs; not for hot paths.
[[nodiscard]] HostLimits read_host_limits(const std::string& root = "");

/// The kernel's limit of mappings per process (`vm.max_map_count`).
[[nodiscard]] Figure read_mapping_limit(const std::string& root = "");

/// Asks again how much room there is, without finding out again where that is written: the files stay open.
/// Thread-compatible. Move-only.
class RoomReader {
 public:
  /// Opens what `read_host_limits(root)` would read for `room()`.
  explicit RoomReader(const std::string& root = "");
  RoomReader(RoomReader&& other) noexcept;
  RoomReader& operator=(RoomReader&& other) noexcept;
  RoomReader(const RoomReader&) = delete;
  RoomReader& operator=(const RoomReader&) = delete;
  ~RoomReader();

  /// Room now in bytes, or nothing if available memory or a group's usage cannot be read. Limits of groups are
  /// read again too. Cost: at most 20 µs; allocates nothing.
  [[nodiscard]] std::optional<Bytes> room() const noexcept;

 private:
  struct Level {
    int limit;
    int usage;
  };

  void close_all() noexcept;

  int meminfo_ = -1;
  std::vector<Level> levels_;
};

}  // namespace memstrata::host
