// SPDX-License-Identifier: Apache-2.0
#include "help_format.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace memstrata::tool {
namespace {

constexpr std::size_t page_width = 79;
constexpr std::size_t text_column = 26;

/// Breaks `text` between words; every line but the first begins with `indent` blanks.
std::string wrapped(std::string_view text, std::size_t column, std::size_t indent) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (column != indent && column + 1 + end > page_width) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column != indent) {
      lines += ' ';
      ++column;
    }
    lines += text.substr(0, end);
    column += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string two_columns(const std::string& left, std::string_view text) {
  std::string line = "  " + left;
  if (line.size() + 2 > text_column) {
    line += "\n";
    line += std::string(text_column, ' ');
  } else {
    line.resize(text_column, ' ');
  }
  return line + wrapped(text, text_column, text_column) + "\n";
}

}  // namespace

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  std::string left = option->get_name(is_positional, !is_positional);
  // The library appends what its validators accept after a colon; the text says it better.
  const std::string type = option->get_type_name();
  if (!is_positional && !type.empty() && option->get_items_expected_max() != 0) {
    left += " " + type.substr(0, type.find(':'));
  }
  std::string text = option->get_description();
  if (!option->get_default_str().empty()) {
    text += " [default: " + option->get_default_str() + "]";
  }
  return two_columns(left, text);
}

std::string HelpFormat::make_subcommand(const CLI::App* sub) const {
  return two_columns(sub->get_name(), sub->get_description());
}

std::string HelpFormat::make_description(const CLI::App* app) const {
  return wrapped(app->get_description(), 0, 0) + "\n\n";
}

}  // namespace memstrata::tool
