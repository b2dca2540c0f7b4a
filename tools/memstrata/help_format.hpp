// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace memstrata::tool {

/// Writes the help of a command: names and values on the left, the text beside them broken at 79 columns, the
/// default at its end. Thread-compatible.
class HelpFormat final : public CLI::Formatter {
 public:
  [[nodiscard]] std::string make_option(const CLI::Option* option,
                                        bool is_positional) const override;
  [[nodiscard]] std::string make_subcommand(const CLI::App* sub) const override;
  [[nodiscard]] std::string make_description(const CLI::App* app) const override;
};

}  // namespace memstrata::tool
