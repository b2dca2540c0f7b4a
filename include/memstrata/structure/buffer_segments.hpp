// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memstrata/core/bytes.hpp"

namespace memstrata {

/// What stands behind a part of a buffer.
enum class SegmentKind : std::uint8_t {
  committed,  ///< Private memory of the buffer.
  shared,     ///< Read-only memory of a shared prefix.
};

struct BufferSegment {
  ByteRange range;
  SegmentKind kind;

  [[nodiscard]] friend constexpr bool operator==(BufferSegment, BufferSegment) noexcept = default;
};

/// What stands behind a contiguous buffer: the live segments, which follow each other without gap from offset 0,
/// and above them the stranded ones, which should be gone but could not be released yet. Offsets and sizes are
/// whole granules, which the owner sees to. Nothing but `make_room` allocates. Thread-compatible.
class BufferSegments {
 public:
  BufferSegments() = default;
  BufferSegments(BufferSegments&& other) noexcept;
  BufferSegments& operator=(BufferSegments&& other) noexcept;
  BufferSegments(const BufferSegments&) = delete;
  BufferSegments& operator=(const BufferSegments&) = delete;
  ~BufferSegments() = default;

  /// End of the live segments.
  [[nodiscard]] Bytes end() const noexcept { return end_; }

  /// Private bytes, stranded ones included.
  [[nodiscard]] Bytes committed() const noexcept { return committed_; }

  /// Shared bytes, stranded ones included.
  [[nodiscard]] Bytes shared() const noexcept { return shared_; }

  [[nodiscard]] std::span<const BufferSegment> live() const noexcept;
  [[nodiscard]] std::span<const BufferSegment> stranded() const noexcept;

  [[nodiscard]] bool has_stranded() const noexcept { return live_count_ != segments_.size(); }

  /// What stands at `offset`, or nothing if that is not live.
  [[nodiscard]] std::optional<SegmentKind> kind_at(Bytes offset) const noexcept;

  /// Bytes of `range` that are live and shared.
  [[nodiscard]] Bytes shared_in(ByteRange range) const noexcept;

  /// The lowest part of `range` that is live, shared and of one segment, or nothing.
  [[nodiscard]] std::optional<ByteRange> first_shared(ByteRange range) const noexcept;

  /// Takes room for `more` further segments; false without memory for it, and then nothing changed.
  [[nodiscard]] bool make_room(std::size_t more) noexcept;

  /// Adds `size` bytes at the end. Nothing is stranded; needs room for one.
  void append(Bytes size, SegmentKind kind) noexcept;

  /// Strands what is live from `offset` on. Needs room for one.
  void strand_from(Bytes offset) noexcept;

  /// Adds stranded memory above everything that is there. Needs room for one.
  void strand(ByteRange range, SegmentKind kind) noexcept;

  /// The lowest `gone` bytes of the highest stranded segment, which exists, have been released.
  void release_stranded_front(Bytes gone) noexcept;

  /// Turns `range`, which is live, shared and of one segment, into private memory. Needs room for two.
  void make_private(ByteRange range) noexcept;

  /// Whether order, gaps and totals are right, recomputed from scratch.
  [[nodiscard]] bool validate() const noexcept;

 private:
  [[nodiscard]] Bytes& total(SegmentKind kind) noexcept;
  [[nodiscard]] std::size_t live_index_of(Bytes offset) const noexcept;
  /// Cuts live segment `index` at `offset`, strictly inside it.
  void split(std::size_t index, Bytes offset) noexcept;
  void join_if_private(std::size_t index) noexcept;

  std::vector<BufferSegment> segments_;
  std::size_t live_count_ = 0;
  Bytes end_;
  Bytes committed_;
  Bytes shared_;
};

}  // namespace memstrata
