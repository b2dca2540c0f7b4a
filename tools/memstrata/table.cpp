// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <libsmartcols/libsmartcols.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "memstrata/core/check.hpp"

namespace memstrata::tool {
namespace {

struct TableRelease {
  void operator()(libscols_table* table) const noexcept { scols_unref_table(table); }
};

struct TextRelease {
  void operator()(char* text) const noexcept { std::free(text); }
};

/// The table library answers with a negative error number.
void require(int answer) {
  if (answer < 0) {
    throw std::system_error(-answer, std::generic_category(), "drawing a table");
  }
}

template <class T>
T* require(T* pointer) {
  require(pointer == nullptr ? -ENOMEM : 0);
  return pointer;
}

int flags_of(const Column& column) noexcept {
  return (column.align == Align::right ? SCOLS_FL_RIGHT : 0) |
         (column.may_wrap ? SCOLS_FL_WRAP : 0);
}

/// Each line of `text` without the blanks that fill its last cell, ended by a newline.
std::string without_trailing_blanks(std::string_view text) {
  std::string trimmed;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    trimmed += line.substr(0, line.find_last_not_of(' ') + 1);
    trimmed += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return trimmed;
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add(std::vector<std::string> cells) {
  MEMSTRATA_VERIFY(
      cells.size() <= columns_.size(), "more cells than columns", cells.size(), columns_.size());
  cells.resize(columns_.size());
  rows_.push_back({.cells = std::move(cells)});
}

void Table::add_group(std::string title) {
  add({std::move(title)});
  rows_.back().is_group = true;
}

std::string Table::to_text(std::size_t width) const {
  const std::unique_ptr<libscols_table, TableRelease> table(require(scols_new_table()));
  require(scols_table_set_column_separator(table.get(), "  "));
  require(scols_table_set_termforce(table.get(),
                                    width == 0 ? SCOLS_TERMFORCE_NEVER : SCOLS_TERMFORCE_ALWAYS));
  if (width != 0) {
    require(scols_table_set_termwidth(table.get(), width));
  }
  for (const Column& column : columns_) {
    require(scols_table_new_column(table.get(), column.title.c_str(), 0, flags_of(column)));
  }
  bool is_grouped = false;
  for (const auto& [cells, is_group] : rows_) {
    is_grouped = is_grouped || is_group;
    libscols_line* const line = require(scols_table_new_line(table.get(), nullptr));
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const bool is_indented = i == 0 && is_grouped && !is_group;
      const std::string text = is_indented ? "  " + cells[i] : cells[i];
      require(scols_line_set_data(line, i, text.c_str()));
    }
  }
  char* raw = nullptr;
  require(scols_print_table_to_string(table.get(), &raw));
  const std::unique_ptr<char, TextRelease> text(raw);
  return without_trailing_blanks(text.get());
}

}  // namespace memstrata::tool
