// SPDX-License-Identifier: Apache-2.0
// Stands in for bench_groups.cpp in a build without benchmarks.
#include <ostream>

#include "bench_groups.hpp"
#include "command_line.hpp"
#include "exit_code.hpp"

namespace memstrata::tool {

int run_bench_groups(const BenchRequest& /*request*/, std::ostream& /*out*/, std::ostream& err) {
  return report_failure(err,
                        "bench",
                        "this build has no benchmarks; configure it with "
                        "-DMEMSTRATA_BUILD_BENCHMARKS=ON ('replay-raw' works without)",
                        exit_could_not_run);
}

}  // namespace memstrata::tool
