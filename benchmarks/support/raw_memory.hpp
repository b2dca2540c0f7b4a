// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "memstrata/core/bytes.hpp"

namespace memstrata::bench {

/// The plain alternative: an address range held by system calls and nothing else. Every call stops the program on
/// failure, because a figure of a failed call means nothing. Move-only by absence of copies; single-threaded.
class RawRange {
 public:
  /// Reserves `size` bytes, aligned to a huge page, without access.
  explicit RawRange(Bytes size);
  RawRange(const RawRange&) = delete;
  RawRange& operator=(const RawRange&) = delete;
  RawRange(RawRange&&) = delete;
  RawRange& operator=(RawRange&&) = delete;
  ~RawRange();

  [[nodiscard]] std::byte* data() const noexcept { return base_; }

  /// `madvise(MADV_HUGEPAGE)` over all of it.
  void advise_huge() const;
  /// `mprotect` to read and write.
  void open(ByteRange range) const;
  /// `mprotect` to no access.
  void close(ByteRange range) const;
  /// `madvise(MADV_POPULATE_WRITE)`.
  void populate(ByteRange range) const;
  /// `madvise(MADV_DONTNEED)`.
  void discard(ByteRange range) const;

 private:
  void* map_;
  std::size_t mapped_;
  std::byte* base_;
};

/// Writes one word in every ordinary page of `[data, data + size)`, each its own value.
void touch_pages(std::byte* data, Bytes size);

/// The sum of the words that `touch_pages` wrote, and of whatever else stands in their places.
[[nodiscard]] std::uint64_t sum_of_pages(const std::byte* data, Bytes size);

/// Writes every word of `[data, data + size)`; the values depend on `position`, the offset in the whole.
void fill_words(std::byte* data, Bytes size, std::uint64_t position);

/// A checksum over every word, in order.
[[nodiscard]] std::uint64_t sum_of_words(const std::byte* data, Bytes size);

/// Bytes of this process in memory now. *Source:* `/proc/self/statm`.
[[nodiscard]] Bytes resident_bytes();

/// Kernel mappings of this process now. *Source:* lines of `/proc/self/maps`.
[[nodiscard]] std::uint64_t mapping_count();

/// Forgets the peak of resident memory, so that the next one is seen. *Source:* `/proc/self/clear_refs`, proc(5).
void reset_peak_resident();

/// The most bytes that were in memory since `reset_peak_resident`. *Source:* `VmHWM` of `/proc/self/status`.
[[nodiscard]] Bytes peak_resident_bytes();

}  // namespace memstrata::bench
