// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "mechanism/host/cgroup_limits.hpp"
#include "mechanism/host/system_file.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/mechanism/host/host_limits.hpp"

namespace memstrata::host {
namespace {

/// Room for the front of `/proc/meminfo`; the line that is needed is the third.
using Buffer = std::array<char, 1024>;

/// The file as it reads now; empty if it cannot be read.
[[nodiscard]] std::string_view text_of(int descriptor, Buffer& buffer) noexcept {
  ssize_t read = 0;
  do {
    read = ::pread(descriptor, buffer.data(), buffer.size(), 0);
  } while (read < 0 && errno == EINTR);
  return read <= 0 ? std::string_view()
                   : std::string_view(buffer.data(), static_cast<std::size_t>(read));
}

[[nodiscard]] int open_for_reading(const std::string& path) noexcept {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

void close_if_open(int descriptor) noexcept {
  if (descriptor >= 0) {
    ::close(descriptor);
  }
}

}  // namespace

RoomReader::RoomReader(const std::string& root) {
  const auto groups = detail::read_cgroups(root);
  levels_.reserve(groups.size());
  meminfo_ = open_for_reading(root + "/proc/meminfo");
  for (const CgroupLevel& group : groups) {
    levels_.push_back({.limit = -1, .usage = -1});
    levels_.back() = {.limit = open_for_reading(detail::limit_file(group)),
                      .usage = open_for_reading(detail::usage_file(group))};
  }
}

RoomReader::RoomReader(RoomReader&& other) noexcept
    : meminfo_(std::exchange(other.meminfo_, -1)), levels_(std::exchange(other.levels_, {})) {}

RoomReader& RoomReader::operator=(RoomReader&& other) noexcept {
  RoomReader taken(std::move(other));
  std::swap(meminfo_, taken.meminfo_);
  std::swap(levels_, taken.levels_);
  return *this;
}

RoomReader::~RoomReader() {
  close_all();
}

void RoomReader::close_all() noexcept {
  close_if_open(meminfo_);
  for (const Level& level : levels_) {
    close_if_open(level.limit);
    close_if_open(level.usage);
  }
}

std::optional<Bytes> RoomReader::room() const noexcept {
  Buffer buffer;
  const auto available = detail::kilobytes_of(text_of(meminfo_, buffer), "MemAvailable");
  if (!available) {
    return std::nullopt;
  }
  Bytes room{*available};
  for (const Level& level : levels_) {
    bool unlimited = false;
    const auto limit = detail::group_limit(text_of(level.limit, buffer), unlimited);
    if (unlimited) {
      continue;
    }
    const auto usage = detail::whole_number(detail::trimmed(text_of(level.usage, buffer)));
    if (!limit || !usage) {
      return std::nullopt;
    }
    room = std::min(room, saturating_sub(Bytes{*limit}, Bytes{*usage}));
  }
  return room;
}

}  // namespace memstrata::host
