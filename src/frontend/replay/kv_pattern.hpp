// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "memstrata/core/bytes.hpp"
#include "memstrata/frontend/replay/geometry.hpp"

namespace memstrata::replay_detail {

/// Whose bytes they are, mixed with the seed and the kind of layers.
struct KvOwner {
  std::uint64_t key;
};

/// The first word that is not as it was written.
struct KvMismatch {
  Bytes offset;  ///< In the owner.
  std::uint64_t expected;
  std::uint64_t found;
};

/// What a check found.
struct KvCheck {
  std::uint64_t mismatches = 0;  ///< Words that differ.
  KvMismatch first{};            ///< Meaningful if there are any.
};

/// The content of KV memory as a function of seed, owner, position in the owner, layer, and K or V: each 8-byte word
/// is different. A token is a number of rows, one for K and one for V of each layer; a row starts with a mix of all
/// these and continues in equal steps, so that filling and checking run at the speed of memory. Thread-compatible.
class KvPattern {
 public:
  /// Which layers' bytes these are.
  enum class Layers : std::uint8_t { full, sliding };

  KvPattern(const KvGeometry& geometry, Layers layers, std::uint64_t seed) noexcept;

  /// A prompt block with an id; positions count from its first byte.
  [[nodiscard]] KvOwner block(std::uint64_t id) const noexcept;

  /// Everything else of one incarnation of a request; positions count from the first byte of its sequence.
  [[nodiscard]] KvOwner request(std::uint64_t request, std::uint64_t incarnation) const noexcept;

  /// Writes `bytes` of the owner to `to`. Offset and size are multiples of 8. Returns the sum of the row starts, as
  /// a checksum of what was written.
  std::uint64_t fill(KvOwner owner, ByteRange bytes, std::byte* to) const noexcept;

  /// Reads every byte of the same and compares.
  [[nodiscard]] KvCheck check(KvOwner owner, ByteRange bytes, const std::byte* from) const noexcept;

 private:
  std::uint64_t seed_;
  std::uint64_t row_;  // bytes
};

/// The same fill for a recorded list, which knows no geometry.
std::uint64_t fill_rows(std::uint64_t owner, Bytes row, ByteRange bytes, std::byte* to) noexcept;

/// Bytes of one row of the pattern; a multiple of 8.
[[nodiscard]] Bytes pattern_row(const KvGeometry& geometry, KvPattern::Layers layers) noexcept;

}  // namespace memstrata::replay_detail
