// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include "terminal.hpp"
#include "units.hpp"

namespace memstrata::tool {
namespace {

constexpr std::chrono::milliseconds first_draw_after{500};
constexpr std::chrono::milliseconds draw_every{100};
constexpr std::size_t bar_width = 24;
constexpr const char* erase_line = "\r\x1b[K";

}  // namespace

Progress::Progress(std::ostream& err, std::string label)
    : err_(err),
      label_(std::move(label)),
      columns_(terminal_behind(err).columns),
      next_draw_(std::chrono::steady_clock::now() + first_draw_after) {}

Progress::~Progress() {
  if (is_drawn_) {
    err_ << erase_line << std::flush;
  }
}

void Progress::update(std::uint64_t done, std::uint64_t total) {
  if (!is_visible()) {
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now < next_draw_) {
    return;
  }
  next_draw_ = now + draw_every;
  draw(done, total);
}

void Progress::draw(std::uint64_t done, std::uint64_t total) {
  std::string line;
  if (total == 0) {
    line = fmt::format("{} {}", label_, format_count(done));
  } else {
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(bar_width));
    line = fmt::format("{} [{}{}] {:3.0f} %",
                       label_,
                       std::string(filled, '#'),
                       std::string(bar_width - filled, '.'),
                       share * 100);
  }
  line.resize(std::min(line.size(), columns_ - 1));
  err_ << erase_line << line << std::flush;
  is_drawn_ = true;
}

}  // namespace memstrata::tool
