// SPDX-License-Identifier: Apache-2.0
#include "mechanism/host/cgroup_limits.hpp"

#include <cstddef>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mechanism/host/system_file.hpp"
#include "memstrata/mechanism/host/host_limits.hpp"

namespace memstrata::host::detail {
namespace {

/// Where the two versions are mounted, and the path of this process in each.
struct Hierarchies {
  std::optional<std::string> mount_v2;
  std::optional<std::string> mount_v1;
  std::optional<std::string> path_v2;
  std::optional<std::string> path_v1;
};

/// Whether the comma-separated `list` has the item `memory`.
[[nodiscard]] bool lists_memory(std::string_view list) {
  return ("," + std::string(list) + ",").find(",memory,") != std::string::npos;
}

/// A mount point as the kernel writes it: blanks and backslashes are three octal digits.
[[nodiscard]] std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                        (text[i + 3] - '0')));
      i += 3;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

void read_mounts(const std::string& text, Hierarchies& found) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string device;
    std::string point;
    std::string type;
    std::string options;
    words >> device >> point >> type >> options;
    if (type == "cgroup2" && !found.mount_v2) {
      found.mount_v2 = unescaped(point);
    } else if (type == "cgroup" && lists_memory(options) && !found.mount_v1) {
      found.mount_v1 = unescaped(point);
    }
  }
}

/// Lines of `/proc/self/cgroup`: `number:controllers:path`; version 2 is `0::path`.
void read_paths(const std::string& text, Hierarchies& found) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    if (line.starts_with("0::")) {
      found.path_v2 = line.substr(second + 1);
    } else if (lists_memory(controllers)) {
      found.path_v1 = line.substr(second + 1);
    }
  }
}

[[nodiscard]] Figure limit_in(const std::string& path) {
  const SystemFile file = read_system_file(path);
  if (!file.text) {
    return Figure::unknown(path, file.reason);
  }
  bool unlimited = false;
  const auto limit = group_limit(*file.text, unlimited);
  if (unlimited) {
    return Figure::unlimited(path);
  }
  return limit ? Figure::known(*limit, path)
               : Figure::unknown(path, "it does not hold a number or max");
}

/// Walks from `path` up to the root of the hierarchy. A group that is not visible here (the path is that of
/// another namespace) has no file and is passed over.
void walk(std::vector<CgroupLevel>& levels,
          int version,
          const std::string& mount,
          std::string path) {
  for (;;) {
    CgroupLevel level{.version = version,
                      .path = mount + (path == "/" ? std::string() : path),
                      .limit = {},
                      .soft_limit = {},
                      .usage = {}};
    const SystemFile probe = read_system_file(limit_file(level));
    if (probe.text) {
      level.limit = limit_in(limit_file(level));
      level.soft_limit = version == 2 ? limit_in(level.path + "/memory.high")
                                      : Figure::unlimited("version 1 has no such limit");
      level.usage = number_in(usage_file(level));
      levels.push_back(std::move(level));
    }
    if (path == "/" || path.empty()) {
      return;
    }
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

std::string limit_file(const CgroupLevel& level) {
  return level.path + (level.version == 2 ? "/memory.max" : "/memory.limit_in_bytes");
}

std::string usage_file(const CgroupLevel& level) {
  return level.path + (level.version == 2 ? "/memory.current" : "/memory.usage_in_bytes");
}

std::vector<CgroupLevel> read_cgroups(const std::string& root) {
  Hierarchies found;
  read_mounts(read_system_file(root + "/proc/self/mounts").text.value_or(""), found);
  read_paths(read_system_file(root + "/proc/self/cgroup").text.value_or(""), found);
  std::vector<CgroupLevel> levels;
  if (found.mount_v2 && found.path_v2) {
    walk(levels, 2, root + *found.mount_v2, *found.path_v2);
  }
  if (found.mount_v1 && found.path_v1) {
    walk(levels, 1, root + *found.mount_v1, *found.path_v1);
  }
  return levels;
}

}  // namespace memstrata::host::detail
