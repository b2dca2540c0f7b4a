// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/host_limits.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "mechanism/host/cgroup_limits.hpp"
#include "mechanism/host/system_file.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host {
namespace {

using detail::SystemFile;

/// The smaller of two figures; a figure without a limit bounds nothing, an unknown one makes the answer unknown.
[[nodiscard]] Figure least(const Figure& a, const Figure& b) {
  if (a.state() == Figure::State::unknown || b.state() == Figure::State::unlimited) {
    return a;
  }
  if (b.state() == Figure::State::unknown || a.state() == Figure::State::unlimited) {
    return b;
  }
  return *b.value() < *a.value() ? b : a;
}

[[nodiscard]] Figure meminfo(const SystemFile& file,
                             const std::string& path,
                             std::string_view key) {
  const std::string source = path + " " + std::string(key);
  if (!file.text) {
    return Figure::unknown(source, file.reason);
  }
  const auto bytes = detail::kilobytes_of(*file.text, key);
  return bytes ? Figure::known(*bytes, source) : Figure::unknown(source, "there is no such line");
}

/// The chosen word of a file such as `always [madvise] never`.
[[nodiscard]] Setting chosen_word(const std::string& path) {
  const SystemFile file = detail::read_system_file(path);
  if (!file.text) {
    return {.value = std::nullopt, .source = path, .reason = file.reason};
  }
  const std::size_t open = file.text->find('[');
  const std::size_t close = file.text->find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    return {.value = std::nullopt, .source = path, .reason = "no word of it is chosen"};
  }
  return {.value = file.text->substr(open + 1, close - open - 1), .source = path, .reason = {}};
}

[[nodiscard]] std::vector<HugePagePool> read_pools(const std::string& root) {
  const std::filesystem::path folder = root + "/sys/kernel/mm/hugepages";
  constexpr std::string_view before = "hugepages-";
  constexpr std::string_view after = "kB";
  std::vector<HugePagePool> pools;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::string_view digits = name;
    if (!digits.starts_with(before) || !digits.ends_with(after)) {
      continue;
    }
    digits.remove_prefix(before.size());
    digits.remove_suffix(after.size());
    const auto kilobytes = detail::whole_number(digits);
    const auto bytes = kilobytes ? checked_mul(Bytes{*kilobytes}, 1024) : std::nullopt;
    if (bytes) {
      const std::string path = entry->path().string();
      pools.push_back({.page = *bytes,
                       .pages = detail::number_in(path + "/nr_hugepages"),
                       .free_pages = detail::number_in(path + "/free_hugepages"),
                       .overcommit = detail::number_in(path + "/nr_overcommit_hugepages")});
    }
  }
  std::ranges::sort(pools, {}, &HugePagePool::page);
  return pools;
}

/// `which` is one of the `RLIMIT_` constants, whose type differs between languages.
template <class Resource>
[[nodiscard]] Figure resource_limit(Resource which, const std::string& name, bool hard) {
  struct rlimit limit = {};
  if (::getrlimit(which, &limit) != 0) {
    return Figure::unknown(name, std::generic_category().message(errno));
  }
  const rlim_t value = hard ? limit.rlim_max : limit.rlim_cur;
  return value == RLIM_INFINITY ? Figure::unlimited(name) : Figure::known(value, name);
}

/// `address sizes : 46 bits physical, 48 bits virtual`, where the processor's line says so.
[[nodiscard]] Figure read_address_bits(const std::string& root) {
  const std::string path = root + "/proc/cpuinfo";
  const SystemFile file = detail::read_system_file(path);
  if (!file.text) {
    return Figure::unknown(path, file.reason);
  }
  const std::size_t end = file.text->find(" bits virtual");
  if (end == std::string::npos) {
    return Figure::unknown(path, "this processor does not say");
  }
  const std::size_t blank = file.text->rfind(' ', end - 1);
  const auto bits =
      detail::whole_number(std::string_view(*file.text).substr(blank + 1, end - blank - 1));
  return bits ? Figure::known(*bits, path) : Figure::unknown(path, "it does not hold a number");
}

void read_memory(const std::string& root, HostLimits& limits) {
  const std::string path = root + "/proc/meminfo";
  const SystemFile file = detail::read_system_file(path);
  limits.memory_total = meminfo(file, path, "MemTotal");
  limits.memory_available = meminfo(file, path, "MemAvailable");
}

void read_pages(const std::string& root, HostLimits& limits) {
  const std::string thp = root + "/sys/kernel/mm/transparent_hugepage";
  limits.page_size = Figure::known(page_size().value, "sysconf(_SC_PAGESIZE)");
  limits.huge_page_size = detail::number_in(thp + "/hpage_pmd_size");
  limits.huge_pages = chosen_word(thp + "/enabled");
  limits.huge_pages_defrag = chosen_word(thp + "/defrag");
  limits.huge_pages_shared = chosen_word(thp + "/shmem_enabled");
  limits.pools = read_pools(root);
}

}  // namespace

Figure HostLimits::effective_limit() const {
  Figure limit = memory_total;
  for (const CgroupLevel& level : cgroups) {
    limit = least(limit, level.limit);
  }
  return limit;
}

Figure HostLimits::soft_limit() const {
  Figure limit = Figure::unlimited("no group has a soft limit");
  for (const CgroupLevel& level : cgroups) {
    if (level.soft_limit.value()) {
      limit = least(limit, level.soft_limit);
    }
  }
  return limit;
}

Figure HostLimits::room() const {
  Figure room = memory_available;
  for (const CgroupLevel& level : cgroups) {
    if (level.limit.state() == Figure::State::unlimited) {
      continue;
    }
    if (!level.limit.value() || !level.usage.value()) {
      return level.limit.value() ? level.usage : level.limit;
    }
    const Bytes left = saturating_sub(Bytes{*level.limit.value()}, Bytes{*level.usage.value()});
    room = least(room, Figure::known(left.value, level.limit.source() + " less usage"));
  }
  return room;
}

Figure HostLimits::default_tier() const {
  const auto percent = [](const Figure& figure, std::uint64_t share) {
    if (!figure.value()) {
      return figure;
    }
    const std::uint64_t value = *figure.value();
    return Figure::known(value / 100 * share + value % 100 * share / 100,
                         std::to_string(share) + " % of " + figure.source());
  };
  return least(least(percent(effective_limit(), 75), soft_limit()), percent(room(), 90));
}

Figure read_mapping_limit(const std::string& root) {
  return detail::number_in(root + "/proc/sys/vm/max_map_count");
}

HostLimits read_host_limits(const std::string& root) {
  HostLimits limits;
  read_pages(root, limits);
  read_memory(root, limits);
  limits.cgroups = detail::read_cgroups(root);
  limits.address_space = resource_limit(RLIMIT_AS, "RLIMIT_AS", false);
  limits.data = resource_limit(RLIMIT_DATA, "RLIMIT_DATA", false);
  limits.locked_memory = resource_limit(RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK", false);
  limits.descriptors = resource_limit(RLIMIT_NOFILE, "RLIMIT_NOFILE", false);
  limits.descriptors_hard = resource_limit(RLIMIT_NOFILE, "RLIMIT_NOFILE (hard)", true);
  limits.mappings = read_mapping_limit(root);
  limits.overcommit_mode = detail::number_in(root + "/proc/sys/vm/overcommit_memory");
  limits.address_bits = read_address_bits(root);
  return limits;
}

}  // namespace memstrata::host
