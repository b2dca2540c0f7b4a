// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <span>
#include <string_view>

namespace memstrata::tool {

using Arguments = std::span<const std::string_view>;

/// A subcommand: a function of its arguments (its own name is not among them) and two streams that returns an
/// exit code. Results go to `out`, progress and failures to `err`.
using CommandFunction = int (*)(Arguments arguments, std::ostream& out, std::ostream& err);

struct Command {
  std::string_view name;
  std::string_view summary;  ///< One line for the list of commands.
  CommandFunction run = nullptr;
};

int run_replay(Arguments arguments, std::ostream& out, std::ostream& err);
int run_trace(Arguments arguments, std::ostream& out, std::ostream& err);
int run_probe(Arguments arguments, std::ostream& out, std::ostream& err);
int run_bench(Arguments arguments, std::ostream& out, std::ostream& err);

/// Every subcommand, in the order in which the help lists them.
[[nodiscard]] std::span<const Command> all_commands() noexcept;

/// Runs the whole tool: finds the subcommand, answers `--help`, `--version` and `help`, and turns an exception
/// into a message and exit code 3.
int run_tool(Arguments arguments, std::ostream& out, std::ostream& err);

}  // namespace memstrata::tool
