// SPDX-License-Identifier: Apache-2.0
#include "support/warm_memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"

namespace memstrata::bench {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20U;
constexpr std::size_t smallest_page = 4096;

}  // namespace

void warm_memory(Bytes size, PageKind kind) {
  const std::size_t mapped = size.value + huge_page;
  void* const map =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MEMSTRATA_VERIFY(
      map != MAP_FAILED, "no memory to warm up with", mapped, static_cast<std::uint64_t>(errno));
  // Whole huge pages only exist from an aligned address on.
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(map) % huge_page;
  auto* const begin =
      static_cast<volatile char*>(map) + (misaligned == 0 ? 0 : huge_page - misaligned);
  if (kind == PageKind::huge) {
    // Advice: without huge pages the warm-up is of ordinary ones.
    static_cast<void>(madvise(map, mapped, MADV_HUGEPAGE));
  }
  for (std::size_t offset = 0; offset < size.value; offset += smallest_page) {
    begin[offset] = 1;
  }
  static_cast<void>(munmap(map, mapped));
}

}  // namespace memstrata::bench
