// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"

namespace memstrata::test {

/// Bytes of `[address, address + size)` that the kernel has in memory for this process, by page, as its page map
/// says. What is not mapped or was never touched is not counted.
[[nodiscard]] inline Bytes resident_bytes(DeviceAddress address, Bytes size) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = address.value() / page;
  const std::uint64_t last = (address.value() + size.value + page - 1) / page;
  std::vector<std::uint64_t> entries(last - first);
  // The page map only answers reads of whole entries, so no stream with a buffer of its own.
  const int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const auto wanted = static_cast<ssize_t>(entries.size() * sizeof(std::uint64_t));
  const bool complete = pread(map,
                              entries.data(),
                              static_cast<std::size_t>(wanted),
                              static_cast<off_t>(first * sizeof(std::uint64_t))) == wanted;
  close(map);
  if (!complete) {
    return Bytes::max();  // no test takes that for an answer
  }
  std::uint64_t present = 0;
  for (const std::uint64_t entry : entries) {
    present +=
        entry >> 63U;  // bit 63: the page is in memory (Documentation/admin-guide/mm/pagemap)
  }
  return Bytes{present * page};
}

/// How the kernel would let a process use one address.
struct KernelAccess {
  bool mapped = false;
  bool readable = false;
  bool writable = false;
};

/// What `/proc/self/maps` says about the address.
[[nodiscard]] inline KernelAccess kernel_access(DeviceAddress address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    char dash = 0;
    std::string rights;
    fields >> std::hex >> from >> dash >> to >> rights;
    if (address.value() >= from && address.value() < to) {
      return {.mapped = true, .readable = rights.at(0) == 'r', .writable = rights.at(1) == 'w'};
    }
  }
  return {};
}

/// Whether one byte at the address can be read, asked by a system call that answers EFAULT instead of faulting.
[[nodiscard]] inline bool is_readable(DeviceAddress address) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) {
    return false;
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel checks the address
  const auto written = write(ends[1], reinterpret_cast<const void*>(address.value()), 1);
  close(ends[0]);
  close(ends[1]);
  return written == 1;
}

}  // namespace memstrata::test
