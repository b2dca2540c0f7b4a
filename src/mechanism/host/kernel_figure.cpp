// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/kernel_figure.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "mechanism/host/backing_state.hpp"
#include "mechanism/host/prefix_record.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host {

/// The way from a backing to its state.
struct KernelFigureAccess {
  [[nodiscard]] static detail::BackingState& state(const PageBacking& backing) noexcept {
    return *backing.state_;
  }
};

namespace {

struct Mapping {
  std::uint64_t first;
  std::uint64_t last;
};

/// The number at the start of `text`, which is then cut off.
[[nodiscard]] std::optional<std::uint64_t> take_number(std::string_view& text, int base) noexcept {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{}) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// `first-last perms ...`, the line that begins a mapping; nothing for any other line.
[[nodiscard]] std::optional<Mapping> parse_head(std::string_view line) noexcept {
  const auto first = take_number(line, 16);
  if (!first || !line.starts_with('-')) {
    return std::nullopt;
  }
  line.remove_prefix(1);
  const auto last = take_number(line, 16);
  if (!last || *last < *first || !line.starts_with(' ')) {
    return std::nullopt;
  }
  return Mapping{.first = *first, .last = *last};
}

/// The bytes of an `Anonymous:  N kB` line; nothing if the line does not read like that.
[[nodiscard]] std::optional<Bytes> parse_anonymous(std::string_view line) noexcept {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const auto kilobytes = take_number(line, 10);
  return kilobytes && line == " kB" ? checked_mul(Bytes{*kilobytes}, 1024) : std::nullopt;
}

[[nodiscard]] VirtualMemoryError unreadable(const std::string& file,
                                            const char* operation,
                                            int code) {
  return Os{.operation = operation,
            .reason = ErrorText::copy(file + ": " + std::generic_category().message(code)),
            .code = code};
}

/// Whether `mapping` has a byte of one of `ranges`, which are sorted and disjoint.
[[nodiscard]] bool touches(const std::vector<ByteRange>& ranges, const Mapping& mapping) noexcept {
  const auto next = std::upper_bound(
      ranges.begin(), ranges.end(), Bytes{mapping.first}, [](Bytes address, ByteRange range) {
        return address < range.end();
      });
  return next != ranges.end() && next->offset < Bytes{mapping.last};
}

[[nodiscard]] Result<Bytes, VirtualMemoryError> sum_anonymous(const std::string& file,
                                                              std::vector<ByteRange> ranges) {
  constexpr std::string_view label = "Anonymous:";
  std::ranges::sort(ranges, {}, &ByteRange::offset);
  std::ifstream smaps(file);
  if (!smaps) {
    return fail(unreadable(file, "open", errno != 0 ? errno : ENOENT));
  }
  Bytes sum;
  bool ours = false;
  for (std::string line; std::getline(smaps, line);) {
    if (const auto mapping = parse_head(line)) {
      ours = touches(ranges, *mapping);
    } else if (ours && line.starts_with(label)) {
      const auto bytes = parse_anonymous(std::string_view(line).substr(label.size()));
      if (!bytes) {
        return fail(unreadable(file, "parse", EINVAL));
      }
      sum = saturating_add(sum, *bytes);
    }
  }
  if (smaps.bad()) {
    return fail(unreadable(file, "read", EIO));
  }
  return sum;
}

[[nodiscard]] Result<Bytes, VirtualMemoryError> sum_files(detail::BackingState& state) {
  Bytes sum;
  std::vector<const detail::PrefixArena*> seen;
  for (const detail::PrefixReference& prefix : state.live_prefixes()) {
    const detail::PrefixRecord& record = *prefix.record();
    if (record.arena != nullptr) {
      if (std::ranges::find(seen, record.arena.get()) != seen.end()) {
        continue;
      }
      seen.push_back(record.arena.get());
    }
    const SystemResult held =
        state.call({.kind = SystemCallKind::file_bytes, .descriptor = record.file().reader()});
    if (!held.is_ok()) {
      return fail(detail::refused(SystemCallKind::file_bytes, held.error));
    }
    sum = saturating_add(sum, Bytes{held.value});
  }
  return sum;
}

}  // namespace

Result<KernelFigure, VirtualMemoryError> kernel_figure(const PageBacking& backing,
                                                       const std::string& smaps) {
  detail::BackingState& state = KernelFigureAccess::state(backing);
  try {
    KernelFigure figure;
    MEMSTRATA_TRY(figure.anonymous, sum_anonymous(smaps, state.reservation_ranges()));
    MEMSTRATA_TRY(figure.prefix_files, sum_files(state));
    return figure;
  } catch (const std::exception&) {
    return fail(detail::no_bookkeeping());
  }
}

}  // namespace memstrata::host
