// SPDX-License-Identifier: Apache-2.0
#include "support/raw_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"

namespace memstrata::bench {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20U;
constexpr std::size_t page = 4096;
/// An odd constant, so that every word of a page set differs. *Source:* 2^64 divided by the golden ratio.
constexpr std::uint64_t spread = 0x9e3779b97f4a7c15ULL;

void must_succeed(int result, const char* call) {
  MEMSTRATA_VERIFY(result == 0, call, static_cast<std::uint64_t>(errno));
}

std::uint64_t word_at(const std::byte* place) {
  std::uint64_t word = 0;
  std::memcpy(&word, place, sizeof word);
  return word;
}

}  // namespace

RawRange::RawRange(Bytes size)
    : map_(mmap(nullptr,
                size.value + huge_page,
                PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1,
                0)),
      mapped_(size.value + huge_page),
      base_(static_cast<std::byte*>(map_)) {
  MEMSTRATA_VERIFY(map_ != MAP_FAILED, "mmap", static_cast<std::uint64_t>(errno));
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(map_) % huge_page;
  base_ += misaligned == 0 ? 0 : huge_page - misaligned;
}

RawRange::~RawRange() {
  munmap(map_, mapped_);
}

void RawRange::advise_huge() const {
  must_succeed(madvise(map_, mapped_, MADV_HUGEPAGE), "madvise(MADV_HUGEPAGE)");
}

void RawRange::open(ByteRange range) const {
  must_succeed(mprotect(base_ + range.offset.value, range.size.value, PROT_READ | PROT_WRITE),
               "mprotect to read and write");
}

void RawRange::close(ByteRange range) const {
  must_succeed(mprotect(base_ + range.offset.value, range.size.value, PROT_NONE),
               "mprotect to no access");
}

void RawRange::populate(ByteRange range) const {
  must_succeed(madvise(base_ + range.offset.value, range.size.value, MADV_POPULATE_WRITE),
               "madvise(MADV_POPULATE_WRITE)");
}

void RawRange::discard(ByteRange range) const {
  must_succeed(madvise(base_ + range.offset.value, range.size.value, MADV_DONTNEED),
               "madvise(MADV_DONTNEED)");
}

void touch_pages(std::byte* data, Bytes size) {
  for (std::size_t offset = 0; offset < size.value; offset += page) {
    const std::uint64_t word = (offset + 1) * spread;
    std::memcpy(data + offset, &word, sizeof word);
  }
}

std::uint64_t sum_of_pages(const std::byte* data, Bytes size) {
  std::uint64_t sum = 0;
  for (std::size_t offset = 0; offset < size.value; offset += page) {
    sum = sum * 31 + word_at(data + offset);
  }
  return sum;
}

void fill_words(std::byte* data, Bytes size, std::uint64_t position) {
  for (std::size_t offset = 0; offset < size.value; offset += sizeof(std::uint64_t)) {
    const std::uint64_t word = (position + offset) * spread;
    std::memcpy(data + offset, &word, sizeof word);
  }
}

std::uint64_t sum_of_words(const std::byte* data, Bytes size) {
  std::uint64_t sum = 0;
  for (std::size_t offset = 0; offset < size.value; offset += sizeof(std::uint64_t)) {
    sum += word_at(data + offset) ^ offset;
  }
  return sum;
}

Bytes resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  statm >> total >> resident;
  MEMSTRATA_VERIFY(statm.good(), "cannot read /proc/self/statm");
  return Bytes{resident * page};
}

std::uint64_t mapping_count() {
  std::ifstream maps("/proc/self/maps");
  std::uint64_t lines = 0;
  for (std::string line; std::getline(maps, line);) {
    ++lines;
  }
  return lines;
}

void reset_peak_resident() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  MEMSTRATA_VERIFY(clear.good(), "cannot reset the peak of resident memory");
}

Bytes peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") {
      std::uint64_t kibibytes = 0;
      status >> kibibytes;
      return 1_KiB * kibibytes;
    }
  }
  MEMSTRATA_VERIFY(false, "no VmHWM in /proc/self/status");
  return {};
}

}  // namespace memstrata::bench
