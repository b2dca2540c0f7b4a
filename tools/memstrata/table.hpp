// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace memstrata::tool {

enum class Align : std::uint8_t { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
  bool may_wrap = false;  ///< Breaks into lines when the terminal is too narrow.
};

struct Row {
  std::vector<std::string> cells;
  bool is_group = false;  ///< A title over the rows that follow it.
};

/// Rows of text under titled columns. A row shorter than the columns is filled with empty cells.
/// Thread-compatible.
class Table {
 public:
  explicit Table(std::vector<Column> columns);

  [[nodiscard]] const std::vector<Column>& columns() const noexcept { return columns_; }

  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }

  /// Appends a row of at most as many cells as there are columns; more stop the program.
  void add(std::vector<std::string> cells);

  /// Appends a title over the rows that follow.
  void add_group(std::string title);

  /// The table as text with aligned columns, each line ending with a newline. `width` is the width of the
  /// terminal in characters; 0 means that lines may be as long as they need.
  /// Throws std::system_error if the table library runs out of memory.
  [[nodiscard]] std::string to_text(std::size_t width) const;

 private:
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace memstrata::tool
