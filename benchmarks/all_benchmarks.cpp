// SPDX-License-Identifier: Apache-2.0
#include "all_benchmarks.hpp"

#include <array>
#include <span>

#include "bench_binding.hpp"
#include "bench_buffer.hpp"
#include "bench_growth.hpp"
#include "bench_lease.hpp"
#include "bench_pages.hpp"
#include "bench_prefix.hpp"
#include "bench_threads.hpp"

namespace memstrata::bench {
namespace {

// A new group is one line here and one source in CMakeLists.txt.
constexpr std::array benchmarks{
    Benchmark{.name = "lease",
              .summary = "permission against one atomic add and subtract",
              .run = bench_lease},
    Benchmark{.name = "binding",
              .summary = "owners, views and releases against one atomic add and subtract",
              .run = bench_binding},
    Benchmark{.name = "pages",
              .summary = "reserving, committing and releasing pages against the same system calls",
              .run = bench_pages},
    Benchmark{.name = "buffer",
              .summary = "what the books of a buffer and a range add to the call under them",
              .run = bench_buffer},
    Benchmark{.name = "prefix",
              .summary = "one more user of a sealed prefix against a private copy",
              .run = bench_prefix},
    Benchmark{.name = "threads",
              .summary = "two threads that commit at once against one",
              .run = bench_threads},
    Benchmark{.name = "growth",
              .summary = "a buffer that grows to 1 GiB against doubling, realloc and mremap",
              .run = bench_growth},
    Benchmark{.name = "copy-each-step",
              .summary = "the same against a new block and a copy on every step",
              .run = bench_copy_each_step},
};

}  // namespace

std::span<const Benchmark> all_benchmarks() noexcept {
  return benchmarks;
}

}  // namespace memstrata::bench
