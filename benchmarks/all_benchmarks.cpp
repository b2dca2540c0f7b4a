// SPDX-License-Identifier: Apache-2.0
#include "all_benchmarks.hpp"

#include <array>
#include <span>

#include "bench_lease.hpp"

namespace memstrata::bench {
namespace {

// A new group is one line here and one source in CMakeLists.txt.
constexpr std::array benchmarks{
    Benchmark{.name = "lease",
              .summary = "permission against one atomic add and subtract",
              .run = bench_lease},
};

}  // namespace

std::span<const Benchmark> all_benchmarks() noexcept {
  return benchmarks;
}

}  // namespace memstrata::bench
