// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "support/resident_bytes.hpp"

namespace memstrata::test {

/// Open descriptors of the process.
[[nodiscard]] inline std::size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

/// One mapping of the process.
struct KernelMapping {
  std::uint64_t first;
  std::uint64_t last;
  KernelAccess access;
};

/// All mappings of the process, lowest first.
[[nodiscard]] inline std::vector<KernelMapping> kernel_mappings_of_process() {
  std::ifstream maps("/proc/self/maps");
  std::vector<KernelMapping> found;
  for (std::string line; std::getline(maps, line);) {
    char* rest = nullptr;
    const std::uint64_t first = std::strtoull(line.c_str(), &rest, 16);
    const std::uint64_t last = std::strtoull(rest + 1, &rest, 16);
    found.push_back(
        {.first = first,
         .last = last,
         .access = {.mapped = true, .readable = rest[1] == 'r', .writable = rest[2] == 'w'}});
  }
  return found;
}

/// What `mappings` say about the address.
[[nodiscard]] inline KernelAccess access_in(const std::vector<KernelMapping>& mappings,
                                            DeviceAddress address) {
  const auto next = std::upper_bound(
      mappings.begin(),
      mappings.end(),
      address.value(),
      [](std::uint64_t at, const KernelMapping& mapping) { return at < mapping.last; });
  return next != mappings.end() && next->first <= address.value() ? next->access : KernelAccess{};
}

/// The kernel's mappings that have a byte of `[address, address + size)`.
[[nodiscard]] inline std::size_t kernel_mappings(DeviceAddress address, Bytes size) {
  std::size_t found = 0;
  for (const KernelMapping& mapping : kernel_mappings_of_process()) {
    found +=
        mapping.last > address.value() && mapping.first < address.value() + size.value ? 1U : 0U;
  }
  return found;
}

/// Whether a byte at the address can be written, asked by a system call that answers EFAULT instead of faulting.
/// The byte becomes 0 if it can.
[[nodiscard]] inline bool is_writable(DeviceAddress address) {
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel checks the address
  const auto got = read(zero, reinterpret_cast<void*>(address.value()), 1);
  close(zero);
  return got == 1;
}

}  // namespace memstrata::test
