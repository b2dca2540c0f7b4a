// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "memstrata/core/bytes.hpp"

namespace memstrata::host {

/// What a `SystemCall` asks the kernel for. Every effect that the host backing has on the system is one of these.
enum class SystemCallKind : std::uint8_t {
  map,          ///< `mmap`; answers with the address.
  unmap,        ///< `munmap`.
  protect,      ///< `mprotect`.
  advise,       ///< `madvise`.
  create_file,  ///< `memfd_create`, close-on-exec; answers with the descriptor.
  resize_file,  ///< `ftruncate` to `length`.
  seal_file,    ///< `fcntl(F_ADD_SEALS)`: no writing, growing, shrinking or further seals, ever.
  punch_hole,   ///< `fallocate` that gives `[offset, offset + length)` of a file back.
  reopen_read_only,  ///< `open` of `/proc/self/fd/N`; answers with a second descriptor.
  close_file,        ///< `close`.
  read_file,   ///< `pread` of `length` bytes at `offset` to `address`; answers with the bytes read.
  file_bytes,  ///< `fstat`; answers with the bytes that the file holds in memory or on disk.
  raise_descriptor_limit,  ///< Raises the soft `RLIMIT_NOFILE` to the hard one; answers with the limit.
};

/// How the processor may use mapped pages.
enum class Protection : std::uint8_t { none, read, read_write };

/// Where a mapping goes: wherever the kernel likes, exactly at `address` (replacing what is there), or exactly
/// at `address` if nothing is there.
enum class Placement : std::uint8_t { anywhere, replace, if_vacant };

/// What `advise` says about a range.
enum class Advice : std::uint8_t { discard, populate_read, populate_write, huge_pages };

/// One system call with everything that is needed to make it again. Numbers only: addresses and lengths in
/// bytes, descriptors as the kernel counts them. Members that a kind does not name are ignored.
struct SystemCall {
  SystemCallKind kind;
  Protection protection = Protection::none;   ///< map, protect.
  Placement placement = Placement::anywhere;  ///< map.
  Advice advice = Advice::discard;            ///< advise.
  bool sealable = false;                      ///< create_file: seals may be added later.
  std::int32_t descriptor = -1;  ///< map: -1 is private anonymous memory without swap accounting,
                                 ///< else a shared mapping of that file. All file calls.
  std::uint64_t address = 0;     ///< map (unless anywhere), unmap, protect, advise, read_file.
  std::uint64_t length = 0;      ///< Bytes.
  std::uint64_t offset = 0;      ///< map of a file, punch_hole, read_file: offset in the file.

  [[nodiscard]] friend constexpr bool operator==(const SystemCall&,
                                                 const SystemCall&) noexcept = default;
};

/// The kernel's answer: `error` is 0 on success and `errno` otherwise; `value` is what the kind answers with.
struct SystemResult {
  std::uint64_t value = 0;
  int error = 0;

  [[nodiscard]] constexpr bool is_ok() const noexcept { return error == 0; }
};

/// The kernel as the host backing sees it: one function, so that a double can record, refuse or count each call
/// without knowing its kind. A call never throws and never retries. Thread-safe.
class SystemCalls {
 public:
  SystemCalls() = default;
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;
  SystemCalls(SystemCalls&&) = delete;
  SystemCalls& operator=(SystemCalls&&) = delete;
  virtual ~SystemCalls() = default;

  /// Makes the call. Cost of the real one: the system call.
  [[nodiscard]] virtual SystemResult execute(const SystemCall& call) noexcept = 0;
};

/// This machine's kernel; one object for the whole process.
[[nodiscard]] std::shared_ptr<SystemCalls> real_system_calls();

/// The name of the function behind a kind: `mmap`, `mprotect`, ...
[[nodiscard]] const char* function_name(SystemCallKind kind) noexcept;

/// The size of a page. Constant for the life of the process, a power of two. Source: `sysconf(_SC_PAGESIZE)`.
[[nodiscard]] Bytes page_size() noexcept;

/// The size of a transparent huge page, 2 MiB where the system does not say.
/// Source: `/sys/kernel/mm/transparent_hugepage/hpage_pmd_size`, read once.
[[nodiscard]] Bytes huge_page_size() noexcept;

}  // namespace memstrata::host
