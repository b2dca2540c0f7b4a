// SPDX-License-Identifier: Apache-2.0
#include "bench_pages.hpp"

#include <sys/mman.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/mechanism/host/host_limits.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "support/open_backing.hpp"
#include "support/paired_rounds.hpp"
#include "support/raw_memory.hpp"
#include "support/targets.hpp"
#include "support/warm_memory.hpp"

namespace memstrata::bench {
namespace {

/// Memory that the written cases use: enough steps for a steady figure, little enough for any machine.
constexpr Bytes written = 128_MiB;
/// Address space of the case that only calls.
constexpr Bytes called = 1_GiB;
constexpr double nanoseconds_per_microsecond = 1000;

double since(std::chrono::nanoseconds start) {
  return static_cast<double>((steady_clock().now() - start).count());
}

// --- H1: address space --------------------------------------------------------------------------------------

constexpr int reservations = 200;

Sample raw_reserve(Bytes size) {
  double spent = 0;
  for (int run = 0; run < reservations; ++run) {
    const auto start = steady_clock().now();
    void* const map =
        mmap(nullptr, size.value, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    spent += since(start);
    MEMSTRATA_VERIFY(map != MAP_FAILED, "mmap");
    munmap(map, size.value);
  }
  return {.cost = spent / reservations};
}

Sample our_reserve(host::PageBacking& backing, Bytes size) {
  double spent = 0;
  for (int run = 0; run < reservations; ++run) {
    const auto start = steady_clock().now();
    auto reservation = backing.reserve(size);
    spent += since(start);
    MEMSTRATA_VERIFY(reservation.has_value(), "reserve");
  }
  return {.cost = spent / reservations};
}

/// What a reservation adds to resident memory, in KiB.
std::uint64_t resident_kibibytes_of(host::PageBacking& backing, Bytes size) {
  static_cast<void>(must(backing.reserve(size)));  // the code of the call is in memory afterwards
  const Bytes before = resident_bytes();
  const auto held = must(backing.reserve(size));
  return saturating_sub(resident_bytes(), before).value / 1024;
}

BenchResult reserve_of(Bytes size, const char* name, const RoundOptions& options) {
  host::PageBacking backing = open_backing({});
  return run_paired(
      {.name = std::string("H1 reserve ") + name,
       .target = at_most(1.5),
       .note = "resident memory while reserved: +" +
               std::to_string(resident_kibibytes_of(backing, size)) + " KiB"},
      {.name = "mmap", .measure = [size] { return raw_reserve(size); }},
      {.name = "reserve", .measure = [&backing, size] { return our_reserve(backing, size); }},
      options);
}

// --- H2 to H5: commit ---------------------------------------------------------------------------------------

struct CommitShape {
  Bytes total;
  Bytes block;
  bool populate = false;
  bool huge = false;
  bool touch = true;
};

BackingShape backing_of(CommitShape shape) {
  return {.granule = shape.huge ? 2_MiB : 64_KiB, .populate = shape.populate, .huge = shape.huge};
}

double per_block(double spent, CommitShape shape) {
  return spent / (static_cast<double>(shape.total.value) / static_cast<double>(shape.block.value));
}

Sample finished(double spent, const std::byte* data, CommitShape shape) {
  return {.cost = per_block(spent, shape),
          .checksum = shape.touch ? sum_of_pages(data, shape.total) : 0};
}

/// One mapping that is readable and writable from the start: nothing is called per block.
Sample raw_mapping(CommitShape shape) {
  const auto start = steady_clock().now();
  void* const map = mmap(nullptr,
                         shape.total.value,
                         PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                         -1,
                         0);
  MEMSTRATA_VERIFY(map != MAP_FAILED, "mmap");
  auto* const data = static_cast<std::byte*>(map);
  touch_pages(data, shape.total);
  const Sample sample = finished(since(start), data, shape);
  munmap(map, shape.total.value);
  return sample;
}

Sample raw_commit(CommitShape shape) {
  const RawRange range(shape.total);
  if (shape.huge) {
    range.advise_huge();
  }
  const auto start = steady_clock().now();
  for (Bytes at; at < shape.total; at += shape.block) {
    range.open({.offset = at, .size = shape.block});
    if (shape.populate) {
      range.populate({.offset = at, .size = shape.block});
    }
  }
  if (shape.touch) {
    touch_pages(range.data(), shape.total);
  }
  return finished(since(start), range.data(), shape);
}

Sample our_commit(host::PageBacking& backing, CommitShape shape) {
  auto reservation = must(backing.reserve(shape.total));
  const auto start = steady_clock().now();
  for (Bytes at; at < shape.total; at += shape.block) {
    must(backing.commit(reservation, ByteRange{.offset = at, .size = shape.block}));
  }
  if (shape.touch) {
    touch_pages(reservation.data(), shape.total);
  }
  return finished(since(start), reservation.data(), shape);
}

BenchResult commit_call(const RoundOptions& options) {
  const CommitShape shape{.total = called, .block = 64_KiB, .touch = false};
  host::PageBacking backing = open_backing(backing_of(shape));
  return run_paired(
      {.name = "H2 commit, the call alone, 64 KiB", .target = at_most(1.5)},
      {.name = "mprotect", .measure = [shape] { return raw_commit(shape); }},
      {.name = "commit", .measure = [&backing, shape] { return our_commit(backing, shape); }},
      options);
}

struct CommitCase {
  const char* name;
  CommitShape shape;
  double same_calls;   ///< Bar against the same raw calls.
  double one_mapping;  ///< Bar against one raw mapping.
};

void add_commit(std::vector<BenchResult>& results,
                const CommitCase& measured,
                const RoundOptions& options) {
  const CommitShape shape = measured.shape;
  host::PageBacking backing = open_backing(backing_of(shape));
  RoundOptions warmed = options;
  warmed.warm = [shape] {
    warm_memory(shape.total, shape.huge ? PageKind::huge : PageKind::ordinary);
  };
  const std::vector<Side> sides{
      {.name = "same calls", .measure = [shape] { return raw_commit(shape); }},
      {.name = "one mmap", .measure = [shape] { return raw_mapping(shape); }},
      {.name = "commit", .measure = [&backing, shape] { return our_commit(backing, shape); }}};
  const Rounds rounds = run_rounds(sides, warmed);
  const std::string name = measured.name;
  results.push_back(compare(
      rounds, 0, 2, {.name = name + ", same raw calls", .target = at_most(measured.same_calls)}));
  results.push_back(compare(
      rounds, 1, 2, {.name = name + ", one raw mapping", .target = at_most(measured.one_mapping)}));
}

// --- H10, H11: release --------------------------------------------------------------------------------------

constexpr Bytes released_block = 2_MiB;

/// Whether the kernel has nothing in memory behind `[data, data + size)`.
bool is_gone(std::byte* data, Bytes size) {
  std::vector<unsigned char> present(size.value / 4096);
  MEMSTRATA_VERIFY(mincore(data, size.value, present.data()) == 0, "mincore");
  for (const unsigned char page : present) {
    if ((page & 1U) != 0) {
      return false;
    }
  }
  return true;
}

double blocks_of(Bytes total) {
  return static_cast<double>(total.value / released_block.value);
}

Sample raw_release(bool huge) {
  const RawRange range(written);
  if (huge) {
    range.advise_huge();
  }
  range.open({.offset = {}, .size = written});
  range.populate({.offset = {}, .size = written});
  touch_pages(range.data(), written);
  const auto start = steady_clock().now();
  for (Bytes end = written; end > Bytes{}; end -= released_block) {
    range.discard({.offset = end - released_block, .size = released_block});
    range.close({.offset = end - released_block, .size = released_block});
  }
  const double spent = since(start);
  return {.cost = spent / blocks_of(written) / nanoseconds_per_microsecond};
}

Sample our_release(host::PageBacking& backing) {
  auto reservation = must(backing.reserve(written));
  must(backing.commit(reservation, ByteRange{.offset = {}, .size = written}));
  touch_pages(reservation.data(), written);
  const auto start = steady_clock().now();
  for (Bytes end = written; end > Bytes{}; end -= released_block) {
    must(backing.decommit(reservation, {.offset = end - released_block, .size = released_block}));
  }
  const double spent = since(start);
  MEMSTRATA_VERIFY(is_gone(reservation.data(), written), "released memory is still there");
  return {.cost = spent / blocks_of(written) / nanoseconds_per_microsecond};
}

void add_release(std::vector<BenchResult>& results,
                 bool huge,
                 double ratio,
                 double absolute,
                 const RoundOptions& options) {
  host::PageBacking backing =
      open_backing({.granule = huge ? 2_MiB : 64_KiB, .populate = true, .huge = huge});
  RoundOptions warmed = options;
  warmed.warm = [huge] { warm_memory(written, huge ? PageKind::huge : PageKind::ordinary); };
  const std::string name = huge ? "H11 release 2 MiB, huge pages" : "H10 release 2 MiB";
  results.push_back(
      run_paired({.name = name + ", same raw calls",
                  .unit = "us",
                  .target = at_most(ratio),
                  .note = "after each round the kernel was asked: nothing is left in memory"},
                 {.name = "discard + mprotect", .measure = [huge] { return raw_release(huge); }},
                 {.name = "decommit", .measure = [&backing] { return our_release(backing); }},
                 warmed));
  results.push_back(against_bound(results.back(), name + ", absolute", absolute));
  results.back().note = "what the same raw calls cost here is in the line above";
}

// --- H18: kernel mappings of many contiguous blocks ---------------------------------------------------------

BenchResult contiguous_blocks(const RoundOptions& options) {
  constexpr std::uint64_t blocks = 100'000;
  host::PageBacking backing = open_backing({});
  return run_paired({.name = "H18 mappings of 100,000 contiguous blocks of 64 KiB",
                     .unit = "mappings",
                     .target = at_most(1.0)},
                    bound(200),
                    {.name = "whole process",
                     .measure =
                         [&backing] {
                           auto reservation = must(backing.reserve(64_KiB * blocks));
                           for (std::uint64_t block = 0; block < blocks; ++block) {
                             must(backing.commit(
                                 reservation, ByteRange{.offset = 64_KiB * block, .size = 64_KiB}));
                           }
                           return Sample{.cost = static_cast<double>(mapping_count())};
                         }},
                    {.rounds = options.rounds, .dropped = 0, .warm = {}});
}

// --- H19: how much room there is ----------------------------------------------------------------------------

constexpr int readings = 100;

Sample raw_reading() {
  std::uint64_t length = 0;
  const auto start = steady_clock().now();
  for (int run = 0; run < readings; ++run) {
    std::ifstream file("/proc/meminfo");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    length += text.size();
  }
  const double spent = since(start);
  MEMSTRATA_VERIFY(length != 0, "cannot read /proc/meminfo");
  return {.cost = spent / readings / nanoseconds_per_microsecond};
}

Sample our_reading(const host::RoomReader& reader) {
  const auto start = steady_clock().now();
  for (int run = 0; run < readings; ++run) {
    MEMSTRATA_VERIFY(reader.room().has_value(), "the room of the host tier is unknown");
  }
  return {.cost = since(start) / readings / nanoseconds_per_microsecond};
}

void add_readings(std::vector<BenchResult>& results, const RoundOptions& options) {
  const host::RoomReader reader;
  const BenchResult paired =
      run_paired({.name = "reading the room, against opening /proc/meminfo alone", .unit = "us"},
                 {.name = "open + read", .measure = raw_reading},
                 {.name = "room", .measure = [&reader] { return our_reading(reader); }},
                 options);
  results.push_back(against_bound(paired, "H19 reading the room with all groups", 20));
  results.push_back(paired);
}

}  // namespace

std::vector<BenchResult> bench_pages(const RoundOptions& options) {
  std::vector<BenchResult> results;
  results.push_back(reserve_of(64_KiB, "64 KiB", options));
  results.push_back(reserve_of(1_GiB, "1 GiB", options));
  results.push_back(reserve_of(64_TiB, "64 TiB", options));
  results.push_back(commit_call(options));
  const CommitCase cases[] = {
      {.name = "H3 commit + touch, 64 KiB",
       .shape = {.total = written, .block = 64_KiB},
       .same_calls = 1.05,
       .one_mapping = 1.15},
      {.name = "H3 commit + touch, 2 MiB",
       .shape = {.total = written, .block = 2_MiB},
       .same_calls = 1.05,
       .one_mapping = 1.15},
      {.name = "H4 commit with populate, 64 KiB",
       .shape = {.total = written, .block = 64_KiB, .populate = true},
       .same_calls = 1.05,
       .one_mapping = 0.85},
      {.name = "H4 commit with populate, 2 MiB",
       .shape = {.total = written, .block = 2_MiB, .populate = true},
       .same_calls = 1.05,
       .one_mapping = 0.85},
      {.name = "H5 commit with populate, 2 MiB, huge pages",
       .shape = {.total = written, .block = 2_MiB, .populate = true, .huge = true},
       .same_calls = 1.05,
       .one_mapping = 0.50}};
  for (const CommitCase& measured : cases) {
    add_commit(results, measured, options);
  }
  add_release(results, false, 1.15, 100, options);
  add_release(results, true, 1.2, 15, options);
  results.push_back(contiguous_blocks(options));
  add_readings(results, options);
  return results;
}

}  // namespace memstrata::bench
