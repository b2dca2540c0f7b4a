// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "command.hpp"
#include "exit_code.hpp"
#include "help_format.hpp"

namespace memstrata::tool {
namespace {

/// The innermost subcommand that was named: its help is the one that was asked for.
const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  return named.empty() ? app : innermost(*named.front());
}

std::string spoken_name(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  return parent == nullptr ? app.get_name() : spoken_name(*parent) + " " + app.get_name();
}

std::string help_of(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  return app.help(parent == nullptr ? std::string() : spoken_name(*parent));
}

}  // namespace

void prepare(CLI::App& app, const std::string& full_name) {
  app.name(full_name);
  app.set_help_flag("-h,--help", "show this text");
  app.formatter(std::make_shared<HelpFormat>());
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

std::optional<int> parse(CLI::App& app, Arguments arguments, std::ostream& out, std::ostream& err) {
  // The library takes its arguments last one first.
  std::vector<std::string> reversed(arguments.begin(), arguments.end());
  std::ranges::reverse(reversed);
  try {
    app.parse(std::move(reversed));
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    out << help_of(innermost(app));
    return exit_ok;
  } catch (const CLI::ParseError& wrong) {
    const std::string name = spoken_name(innermost(app));
    err << name << ": " << wrong.what() << "\nRun '" << name << " --help' for the options.\n";
    return exit_usage;
  }
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc{} && stop == end && value >= least && value <= most) {
      return {};
    }
    return most == std::numeric_limits<std::uint64_t>::max()
               ? fmt::format("'{}' is no whole number from {} upward", text, least)
               : fmt::format("'{}' is no whole number from {} to {}", text, least, most);
  };
  return {check, ""};
}

int report_failure(std::ostream& err,
                   std::string_view command,
                   std::string_view message,
                   int code) {
  err << "memstrata " << command << ": " << message << "\n";
  return code;
}

}  // namespace memstrata::tool
