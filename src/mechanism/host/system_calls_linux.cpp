// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host {
namespace {

/// The unit in which `fstat` counts blocks. Source: stat(2).
constexpr std::uint64_t block_bytes = 512;

// Older C library headers lack the names; the numbers are part of the kernel's interface (Linux 5.14).
#if !defined(MADV_POPULATE_READ)
constexpr int MADV_POPULATE_READ = 22;
constexpr int MADV_POPULATE_WRITE = 23;
#endif

[[nodiscard]] void* pointer_to(std::uint64_t address) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses of calls are numbers, so that they can be recorded
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

[[nodiscard]] SystemResult answer(std::int64_t result) noexcept {
  return result < 0 ? SystemResult{.error = errno}
                    : SystemResult{.value = static_cast<std::uint64_t>(result)};
}

[[nodiscard]] int protection_of(Protection protection) noexcept {
  switch (protection) {
    case Protection::none:
      return PROT_NONE;
    case Protection::read:
      return PROT_READ;
    case Protection::read_write:
      return PROT_READ | PROT_WRITE;
  }
  std::unreachable();
}

[[nodiscard]] int placement_of(Placement placement) noexcept {
  switch (placement) {
    case Placement::anywhere:
      return 0;
    case Placement::replace:
      return MAP_FIXED;
    case Placement::if_vacant:
      return MAP_FIXED_NOREPLACE;
  }
  std::unreachable();
}

[[nodiscard]] int advice_of(Advice advice) noexcept {
  switch (advice) {
    case Advice::discard:
      return MADV_DONTNEED;
    case Advice::populate_read:
      return MADV_POPULATE_READ;
    case Advice::populate_write:
      return MADV_POPULATE_WRITE;
    case Advice::huge_pages:
      return MADV_HUGEPAGE;
  }
  std::unreachable();
}

[[nodiscard]] SystemResult map(const SystemCall& call) noexcept {
  const int kind = call.descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
                                       : MAP_SHARED | MAP_NORESERVE;
  void* const hint = call.placement == Placement::anywhere ? nullptr : pointer_to(call.address);
  void* const got = ::mmap(hint,
                           call.length,
                           protection_of(call.protection),
                           kind | placement_of(call.placement),
                           call.descriptor,
                           static_cast<off_t>(call.offset));
  if (got == MAP_FAILED) {
    return {.error = errno};
  }
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(got));
  if (call.placement == Placement::if_vacant && address != call.address) {
    // A kernel older than 4.17 takes the address as a hint only.
    ::munmap(got, call.length);
    return {.error = EEXIST};
  }
  return {.value = address};
}

[[nodiscard]] SystemResult create_file(const SystemCall& call) noexcept {
  const unsigned sealing = call.sealable ? MFD_ALLOW_SEALING : 0U;
  return answer(::memfd_create("memstrata-prefix", MFD_CLOEXEC | sealing));
}

[[nodiscard]] SystemResult reopen_read_only(const SystemCall& call) noexcept {
  std::array<char, 40> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", call.descriptor);
  return answer(::open(path.data(), O_RDONLY | O_CLOEXEC));
}

[[nodiscard]] SystemResult read_file(const SystemCall& call) noexcept {
  return answer(::pread(
      call.descriptor, pointer_to(call.address), call.length, static_cast<off_t>(call.offset)));
}

[[nodiscard]] SystemResult file_bytes(const SystemCall& call) noexcept {
  struct stat status = {};
  if (::fstat(call.descriptor, &status) != 0) {
    return {.error = errno};
  }
  return {.value = static_cast<std::uint64_t>(status.st_blocks) * block_bytes};
}

[[nodiscard]] SystemResult raise_descriptor_limit() noexcept {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return {.error = errno};
  }
  if (limit.rlim_cur < limit.rlim_max) {
    const struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) {
      limit = raised;
    }
  }
  return {.value = limit.rlim_cur};
}

class LinuxCalls final : public SystemCalls {
 public:
  [[nodiscard]] SystemResult execute(const SystemCall& call) noexcept override {
    switch (call.kind) {
      case SystemCallKind::map:
        return map(call);
      case SystemCallKind::unmap:
        return answer(::munmap(pointer_to(call.address), call.length));
      case SystemCallKind::protect:
        return answer(
            ::mprotect(pointer_to(call.address), call.length, protection_of(call.protection)));
      case SystemCallKind::advise:
        return answer(::madvise(pointer_to(call.address), call.length, advice_of(call.advice)));
      case SystemCallKind::create_file:
        return create_file(call);
      case SystemCallKind::resize_file:
        return answer(::ftruncate(call.descriptor, static_cast<off_t>(call.length)));
      case SystemCallKind::seal_file:
        return answer(::fcntl(call.descriptor,
                              F_ADD_SEALS,
                              F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL));
      case SystemCallKind::punch_hole:
        return answer(::fallocate(call.descriptor,
                                  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                  static_cast<off_t>(call.offset),
                                  static_cast<off_t>(call.length)));
      case SystemCallKind::reopen_read_only:
        return reopen_read_only(call);
      case SystemCallKind::close_file:
        return answer(::close(call.descriptor));
      case SystemCallKind::read_file:
        return read_file(call);
      case SystemCallKind::file_bytes:
        return file_bytes(call);
      case SystemCallKind::raise_descriptor_limit:
        return raise_descriptor_limit();
    }
    std::unreachable();
  }
};

[[nodiscard]] Bytes read_huge_page_size() noexcept {
  constexpr Bytes usual = Bytes{2} * (1U << 20U);
  try {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    std::uint64_t size = 0;
    return file >> size && is_power_of_two(size) ? Bytes{size} : usual;
  } catch (const std::exception&) {
    return usual;
  }
}

}  // namespace

std::shared_ptr<SystemCalls> real_system_calls() {
  static const auto calls = std::make_shared<LinuxCalls>();
  return calls;
}

const char* function_name(SystemCallKind kind) noexcept {
  switch (kind) {
    case SystemCallKind::map:
      return "mmap";
    case SystemCallKind::unmap:
      return "munmap";
    case SystemCallKind::protect:
      return "mprotect";
    case SystemCallKind::advise:
      return "madvise";
    case SystemCallKind::create_file:
      return "memfd_create";
    case SystemCallKind::resize_file:
      return "ftruncate";
    case SystemCallKind::seal_file:
      return "fcntl(F_ADD_SEALS)";
    case SystemCallKind::punch_hole:
      return "fallocate";
    case SystemCallKind::reopen_read_only:
      return "open";
    case SystemCallKind::close_file:
      return "close";
    case SystemCallKind::read_file:
      return "pread";
    case SystemCallKind::file_bytes:
      return "fstat";
    case SystemCallKind::raise_descriptor_limit:
      return "setrlimit";
  }
  std::unreachable();
}

Bytes page_size() noexcept {
  static const Bytes size{static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))};
  return size;
}

Bytes huge_page_size() noexcept {
  static const Bytes size = read_huge_page_size();
  return size;
}

}  // namespace memstrata::host
