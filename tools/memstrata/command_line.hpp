// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "command.hpp"

namespace memstrata::tool {

/// Gives `app` the looks that all commands share. `full_name` is what the user types: "memstrata replay".
void prepare(CLI::App& app, const std::string& full_name);

/// Reads `arguments` into what the options of `app` are bound to. Nothing: go on. Else the command ends with that
/// exit code: help was asked for and is on `out`, or the arguments are wrong and `err` says what and how to go on.
[[nodiscard]] std::optional<int> parse(CLI::App& app,
                                       Arguments arguments,
                                       std::ostream& out,
                                       std::ostream& err);

/// Accepts digits alone that make a number from `least` to `most`; refuses a sign, a fraction and a unit.
[[nodiscard]] CLI::Validator whole_number(
    std::uint64_t least,
    std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

/// Writes "memstrata COMMAND: MESSAGE" to `err` and returns `code`.
int report_failure(std::ostream& err, std::string_view command, std::string_view message, int code);

}  // namespace memstrata::tool
