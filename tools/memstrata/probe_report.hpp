// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "memstrata/mechanism/host/host_limits.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "probe_measure.hpp"

namespace memstrata::tool {

/// The budgets that every backing of a process shares, as a process that has taken nothing sees them.
struct Budgets {
  std::optional<host::BudgetUsage> mappings;
  std::optional<host::BudgetUsage> descriptors;
  std::string failure;  ///< Why they are not known; else empty.
};

/// Everything that `memstrata probe` finds out.
struct ProbeReport {
  host::HostLimits limits;
  Budgets budgets;
  std::optional<Bandwidth> bandwidth;  ///< Nothing if it was not measured.
  std::vector<BackingCosts> backings;  ///< Empty if they were not measured.
};

/// Asks a backing for its budgets.
[[nodiscard]] Budgets read_budgets();

/// The figures under the names of docs/json.md.
[[nodiscard]] nlohmann::ordered_json to_json(const ProbeReport& report);

/// The figures as tables, as wide as the terminal behind `out`.
void print_probe(const ProbeReport& report, std::ostream& out);

}  // namespace memstrata::tool
