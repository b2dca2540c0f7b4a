// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>

namespace memstrata::tool {

/// A line on a terminal that says how far a long run is, drawn at most ten times a second and only after the
/// first half second. Draws nothing unless the stream is a terminal. Erases itself when destroyed.
/// Single-threaded.
class Progress {
 public:
  /// `label` says what is under way. The stream outlives the object.
  Progress(std::ostream& err, std::string label);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress(Progress&&) = delete;
  Progress& operator=(Progress&&) = delete;
  ~Progress();

  [[nodiscard]] bool is_visible() const noexcept { return columns_ != 0; }

  void relabel(std::string label) { label_ = std::move(label); }

  /// Shows that `done` of `total` units are finished. `total` 0 means that it is not known.
  void update(std::uint64_t done, std::uint64_t total);

 private:
  void draw(std::uint64_t done, std::uint64_t total);

  std::ostream& err_;
  std::string label_;
  std::size_t columns_;
  std::chrono::steady_clock::time_point next_draw_;
  bool is_drawn_ = false;
};

}  // namespace memstrata::tool
