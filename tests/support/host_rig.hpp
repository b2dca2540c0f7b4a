// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "support/breaking_system_calls.hpp"
#include "support/process_view.hpp"
#include "support/resident_bytes.hpp"
#include "support/scripted_governor.hpp"

namespace memstrata::test {

/// Everything that a failed call must leave as it was, as the backing, the books and the kernel say.
struct HostSnapshot {
  Bytes committed;
  Bytes shared;
  Bytes retained;
  Bytes resident;
  Bytes leased;
  std::uint64_t mappings = 0;
  std::uint64_t descriptors = 0;
  std::string access;   ///< One letter per granule: w(ritable), r(eadable), -.
  std::string content;  ///< The first byte of each readable granule.

  [[nodiscard]] friend bool operator==(const HostSnapshot&, const HostSnapshot&) = default;

  friend std::ostream& operator<<(std::ostream& out, const HostSnapshot& shot) {
    out << "committed " << shot.committed.value << " shared " << shot.shared.value << " retained "
        << shot.retained.value << " resident " << shot.resident.value << " leased "
        << shot.leased.value << " mappings " << shot.mappings << " descriptors " << shot.descriptors
        << " access " << shot.access << " content ";
    for (const char byte : shot.content) {
      out << static_cast<int>(static_cast<unsigned char>(byte)) << ',';
    }
    return out;
  }
};

/// A backing over a kernel that can be made to fail, one reservation of `granules`, and the granule.
struct HostRig {
  explicit HostRig(std::uint64_t granules = 8, host::PageBackingOptions options = small_options())
      : g(options.granule),
        kernel(std::make_shared<BreakingSystemCalls>()),
        backing(make(std::move(options), kernel)),
        reservation(backing.reserve(g * granules).value()) {}

  /// Granules of one page: quick, and as strict as larger ones.
  [[nodiscard]] static host::PageBackingOptions small_options() {
    host::PageBackingOptions options;
    options.granule = host::page_size();
    return options;
  }

  [[nodiscard]] static host::PageBacking make(host::PageBackingOptions options,
                                              const std::shared_ptr<BreakingSystemCalls>& kernel) {
    options.system_calls = kernel;
    return host::PageBacking::create(std::move(options)).value();
  }

  /// `count` granules from granule `first` on.
  [[nodiscard]] ByteRange granules(std::uint64_t first, std::uint64_t count) const {
    return {.offset = g * first, .size = g * count};
  }

  [[nodiscard]] DeviceAddress address(std::uint64_t granule) const {
    return reservation.base() + g * granule;
  }

  [[nodiscard]] std::byte* data(std::uint64_t granule) const {
    return reservation.data() + (g * granule).value;
  }

  void fill(std::uint64_t first, std::uint64_t count, std::uint8_t value) const {
    std::memset(data(first), value, (g * count).value);
  }

  /// Whether every byte of the granules is `value`.
  [[nodiscard]] bool is_filled(std::uint64_t first, std::uint64_t count, std::uint8_t value) const {
    const std::byte* const bytes = data(first);
    for (std::uint64_t i = 0; i < (g * count).value; ++i) {
      if (bytes[i] != std::byte{value}) {
        return false;
      }
    }
    return true;
  }

  /// A sealed prefix whose granule k is filled with `first + k`.
  [[nodiscard]] host::Prefix prefix(std::uint64_t granules, std::uint8_t first) {
    auto builder = backing.create_prefix(g * granules).value();
    for (std::uint64_t k = 0; k < granules; ++k) {
      std::memset(builder.data() + (g * k).value, static_cast<int>(first + k), g.value);
    }
    return builder.seal().value();
  }

  [[nodiscard]] HostSnapshot snapshot() const {
    HostSnapshot shot{.committed = backing.committed(reservation),
                      .shared = backing.shared(reservation),
                      .retained = backing.retained(reservation),
                      .resident = {},
                      .leased = backing.options().governor == nullptr
                                    ? Bytes{}
                                    : backing.options().governor->usage(Tier::host).used,
                      .mappings = backing.mapping_usage().used,
                      .descriptors = backing.descriptor_usage().used,
                      .access = {},
                      .content = {}};
    const std::vector<KernelMapping> mappings = kernel_mappings_of_process();
    for (std::uint64_t k = 0; k * g.value < reservation.size().value; ++k) {
      const KernelAccess access = access_in(mappings, address(k));
      shot.access += access.writable ? 'w' : access.readable ? 'r' : access.mapped ? '-' : '!';
      if (access.readable) {
        shot.content += std::to_integer<char>(*data(k));
      }
    }
    // Last, since looking at shared granules makes the kernel map them.
    shot.resident = resident_bytes(reservation.base(), reservation.size());
    return shot;
  }

  Bytes g;
  std::shared_ptr<BreakingSystemCalls> kernel;
  host::PageBacking backing;
  host::PageBacking::Reservation reservation;
};

}  // namespace memstrata::test
