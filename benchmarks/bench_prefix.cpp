// SPDX-License-Identifier: Apache-2.0
#include "bench_prefix.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/mechanism/host/kernel_figure.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "support/open_backing.hpp"
#include "support/paired_rounds.hpp"
#include "support/raw_memory.hpp"
#include "support/targets.hpp"
#include "support/warm_memory.hpp"

namespace memstrata::bench {
namespace {

constexpr Bytes prefix_size = 64_MiB;
constexpr int users = 8;
constexpr double nanoseconds_per_microsecond = 1000;

double microseconds_each(std::chrono::nanoseconds start) {
  return static_cast<double>((steady_clock().now() - start).count()) / users /
         nanoseconds_per_microsecond;
}

/// A sealed file made by hand, with a read-only descriptor.
class RawPrefix {
 public:
  RawPrefix() : writable_(memfd_create("raw-prefix", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    MEMSTRATA_VERIFY(writable_ >= 0 && ftruncate(writable_, prefix_size.value) == 0, "memfd");
    void* const map =
        mmap(nullptr, prefix_size.value, PROT_READ | PROT_WRITE, MAP_SHARED, writable_, 0);
    MEMSTRATA_VERIFY(map != MAP_FAILED, "mmap");
    fill_words(static_cast<std::byte*>(map), prefix_size, 0);
    munmap(map, prefix_size.value);
    MEMSTRATA_VERIFY(fcntl(writable_, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) == 0,
                     "seal");
    read_only_ = open(fmt::format("/proc/self/fd/{}", writable_).c_str(), O_RDONLY | O_CLOEXEC);
    MEMSTRATA_VERIFY(read_only_ >= 0, "open");
  }

  RawPrefix(const RawPrefix&) = delete;
  RawPrefix& operator=(const RawPrefix&) = delete;
  RawPrefix(RawPrefix&&) = delete;
  RawPrefix& operator=(RawPrefix&&) = delete;

  ~RawPrefix() {
    close(read_only_);
    close(writable_);
  }

  void map_at(std::byte* place) const {
    void* const map =
        mmap(place, prefix_size.value, PROT_READ, MAP_SHARED | MAP_FIXED, read_only_, 0);
    MEMSTRATA_VERIFY(map == place, "mmap");
  }

 private:
  int writable_;
  int read_only_;
};

host::Prefix sealed_prefix(host::PageBacking& backing) {
  auto builder = must(backing.create_prefix(prefix_size));
  fill_words(builder.data(), prefix_size, 0);
  return must(builder.seal());
}

Bytes user_stride() {
  return prefix_size + 2_MiB;
}

Sample raw_users(const RawPrefix& prefix, bool populate) {
  const RawRange range(user_stride() * users);
  const auto start = steady_clock().now();
  for (std::uint64_t user = 0; user < users; ++user) {
    std::byte* const place = range.data() + (user_stride() * user).value;
    prefix.map_at(place);
    if (populate) {
      MEMSTRATA_VERIFY(madvise(place, prefix_size.value, MADV_POPULATE_READ) == 0, "populate");
    }
  }
  return {.cost = microseconds_each(start), .checksum = sum_of_words(range.data(), prefix_size)};
}

Sample our_users(host::PageBacking& backing, const host::Prefix& prefix) {
  auto reservation = must(backing.reserve(user_stride() * users));
  const auto start = steady_clock().now();
  for (std::uint64_t user = 0; user < users; ++user) {
    must(backing.map_shared(
        reservation, user_stride() * user, prefix, {.offset = {}, .size = prefix_size}));
  }
  return {.cost = microseconds_each(start),
          .checksum = sum_of_words(reservation.data(), prefix_size)};
}

Sample private_copies(const std::vector<std::byte>& content) {
  const RawRange range(user_stride() * users);
  const auto start = steady_clock().now();
  for (std::uint64_t user = 0; user < users; ++user) {
    const Bytes place = user_stride() * user;
    range.open({.offset = place, .size = prefix_size});
    std::memcpy(range.data() + place.value, content.data(), prefix_size.value);
  }
  return {.cost = microseconds_each(start), .checksum = sum_of_words(range.data(), prefix_size)};
}

/// What one more user adds to what the kernel holds for the backing.
std::string physical_growth(host::PageBacking& backing, const host::Prefix& prefix) {
  const Bytes before = must(host::kernel_figure(backing)).total();
  auto reservation = must(backing.reserve(prefix_size));
  must(backing.map_shared(reservation, {}, prefix, {.offset = {}, .size = prefix_size}));
  const std::uint64_t sum = sum_of_words(reservation.data(), prefix_size);
  const Bytes after = must(host::kernel_figure(backing)).total();
  return fmt::format("physical memory of one more user that read it all: +{} bytes (checksum {:x})",
                     saturating_sub(after, before).value,
                     sum);
}

/// Whether a child that writes into the mapping dies of it.
bool write_faults(std::byte* place) {
  const pid_t child = fork();
  MEMSTRATA_VERIFY(child >= 0, "fork");
  if (child == 0) {
    static_cast<void>(std::signal(SIGSEGV, SIG_DFL));
    *static_cast<volatile std::byte*>(place) = std::byte{1};
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

/// H13 as a count of ways to write that are open; none should be.
BenchResult protection(host::PageBacking& backing,
                       const host::Prefix& prefix,
                       const RoundOptions& options) {
  auto reservation = must(backing.reserve(prefix_size));
  must(backing.map_shared(reservation, {}, prefix, {.offset = {}, .size = prefix_size}));
  return run_paired(
      {.name = "H13 ways to stop a write into a prefix",
       .unit = "of 2",
       .target = Target{.bound = Target::Bound::at_least, .ratio = 1},
       .note = "a write faults, and mprotect to writable is refused with EACCES"},
      bound(2),
      {.name = "hold",
       .measure =
           [&reservation] {
             const bool is_refused =
                 mprotect(reservation.data(), prefix_size.value, PROT_READ | PROT_WRITE) != 0 &&
                 errno == EACCES;
             return Sample{.cost = (write_faults(reservation.data()) ? 1.0 : 0.0) +
                                   (is_refused ? 1.0 : 0.0)};
           }},
      {.rounds = options.rounds, .dropped = 0, .warm = {}});
}

}  // namespace

std::vector<BenchResult> bench_prefix(const RoundOptions& options) {
  const RawPrefix raw;
  host::PageBacking lazy = open_backing({});
  auto populating_options = options_of({});
  populating_options.populate_shared = true;
  host::PageBacking populating = must(host::PageBacking::create(populating_options));
  const host::Prefix lazy_prefix = sealed_prefix(lazy);
  const host::Prefix populated_prefix = sealed_prefix(populating);
  std::vector<std::byte> content(prefix_size.value);
  fill_words(content.data(), prefix_size, 0);

  RoundOptions warmed = options;
  warmed.warm = [] { warm_memory(user_stride() * users, PageKind::ordinary); };
  const std::vector<Side> sides{
      {.name = "private copy", .measure = [&content] { return private_copies(content); }},
      {.name = "mmap", .measure = [&raw] { return raw_users(raw, false); }},
      {.name = "map_shared",
       .measure = [&lazy, &lazy_prefix] { return our_users(lazy, lazy_prefix); }},
      {.name = "mmap + populate", .measure = [&raw] { return raw_users(raw, true); }},
      {.name = "map_shared, populated", .measure = [&populating, &populated_prefix] {
         return our_users(populating, populated_prefix);
       }}};
  const Rounds rounds = run_rounds(sides, warmed);

  std::vector<BenchResult> results;
  const BenchResult call =
      compare(rounds, 1, 2, {.name = "one more user of 64 MiB, same raw call", .unit = "us"});
  results.push_back(against_bound(call, "H12 one more user of 64 MiB, lazily", 12));
  results.back().note = physical_growth(lazy, lazy_prefix);
  results.push_back(call);
  results.push_back(compare(rounds,
                            0,
                            4,
                            {.name = "H12 one more user of 64 MiB, populated, against a copy",
                             .unit = "us",
                             .target = at_most(0.08)}));
  results.push_back(
      compare(rounds, 3, 4, {.name = "one more user, populated, same raw calls", .unit = "us"}));
  results.push_back(protection(lazy, lazy_prefix, options));
  return results;
}

}  // namespace memstrata::bench
