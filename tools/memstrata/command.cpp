// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <new>
#include <numeric>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exit_code.hpp"
#include "version.hpp"

namespace memstrata::tool {
namespace {

constexpr std::array commands{
    Command{.name = "replay",
            .summary = "replay a serving trace and compare ways of holding KV",
            .run = run_replay},
    Command{.name = "trace", .summary = "import, make or describe traces", .run = run_trace},
    Command{.name = "probe",
            .summary = "show what this machine offers, its limits and its costs",
            .run = run_probe},
    Command{.name = "bench",
            .summary = "measure the library against the plain system calls",
            .run = run_bench},
};

const Command* find_command(std::string_view name) {
  const auto* const found = std::ranges::find(commands, name, &Command::name);
  return found == commands.end() ? nullptr : found;
}

/// How many single letters must be inserted, deleted or replaced to turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string overview() {
  std::string text =
      "memstrata: the memory stack for AI inference runtimes\n\n"
      "Usage: memstrata COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& command : commands) {
    text += fmt::format("  {:<8} {}\n", command.name, command.summary);
  }
  text +=
      "  help     show the options of a command: memstrata help COMMAND\n"
      "\nOptions:\n"
      "  -h, --help  this text\n"
      "  --version   the version\n"
      "\nFirst steps:\n"
      "  memstrata replay                          the sample trace on real memory\n"
      "  memstrata replay TRACE --backing sim --policy all --model llama-3-8b --limit host=96GiB\n"
      "  memstrata probe                           what this machine can do\n"
      "\nExit status: 0 done, 1 the check found something, 2 wrong usage or input, 3 could not "
      "run.\n";
  return text;
}

int report_unknown(std::string_view name, std::ostream& err) {
  err << "memstrata: there is no command '" << name << "'";
  const auto closest = std::ranges::min(
      commands, {}, [name](const Command& command) { return edit_distance(name, command.name); });
  if (edit_distance(name, closest.name) <= 2) {
    err << "; did you mean '" << closest.name << "'?";
  }
  err << "\nRun 'memstrata --help' for the list of commands.\n";
  return exit_usage;
}

int run_help(Arguments arguments, std::ostream& out, std::ostream& err) {
  if (arguments.empty()) {
    out << overview();
    return exit_ok;
  }
  const Command* const command = find_command(arguments.front());
  if (command == nullptr) {
    return report_unknown(arguments.front(), err);
  }
  std::vector<std::string_view> rest(arguments.begin() + 1, arguments.end());
  rest.emplace_back("--help");
  return command->run(rest, out, err);
}

int dispatch(Arguments arguments, std::ostream& out, std::ostream& err) {
  if (arguments.empty()) {
    err << overview();
    return exit_usage;
  }
  const std::string_view name = arguments.front();
  const Arguments rest = arguments.subspan(1);
  if (name == "--help" || name == "-h") {
    return run_help({}, out, err);
  }
  if (name == "--version") {
    out << "memstrata " << version << "\n";
    return exit_ok;
  }
  if (name == "help") {
    return run_help(rest, out, err);
  }
  const Command* const command = find_command(name);
  return command == nullptr ? report_unknown(name, err) : command->run(rest, out, err);
}

}  // namespace

std::span<const Command> all_commands() noexcept {
  return commands;
}

int run_tool(Arguments arguments, std::ostream& out, std::ostream& err) {
  try {
    const int code = dispatch(arguments, out, err);
    out.flush();
    if (!out) {
      err << "memstrata: the results could not be written to standard output; is the disk full or "
             "the reader gone?\n";
      return exit_could_not_run;
    }
    return code;
  } catch (const std::bad_alloc&) {
    err << "memstrata: the tool itself ran out of memory; free some or raise the limit of address "
           "space (ulimit -v)\n";
  } catch (const std::exception& failure) {
    err << "memstrata: unexpected failure: " << failure.what() << "\n";
  }
  return exit_could_not_run;
}

}  // namespace memstrata::tool
