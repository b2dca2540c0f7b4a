// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>

#include "memstrata/core/check.hpp"

namespace memstrata {

/// A count of bytes: never an address, never a number of elements.
///
/// `+`, `-` and `*` stop the program (`MEMSTRATA_VERIFY`) instead of wrapping, because a wrapped sum of bytes
/// corrupts memory. For input that may be absurd use `checked_add`, `checked_mul` and `align_up`, which answer
/// with nothing. Thread-compatible.
struct Bytes {
  std::uint64_t value = 0;

  /// The largest count that can be represented.
  [[nodiscard]] static constexpr Bytes max() noexcept {
    return Bytes{std::numeric_limits<std::uint64_t>::max()};
  }

  [[nodiscard]] friend constexpr auto operator<=>(Bytes, Bytes) noexcept = default;

  constexpr Bytes& operator+=(Bytes other) noexcept {
    MEMSTRATA_VERIFY(value + other.value >= value, "sum of bytes wraps", value, other.value);
    value += other.value;
    return *this;
  }

  constexpr Bytes& operator-=(Bytes other) noexcept {
    MEMSTRATA_VERIFY(value >= other.value, "difference of bytes is negative", value, other.value);
    value -= other.value;
    return *this;
  }

  [[nodiscard]] friend constexpr Bytes operator+(Bytes a, Bytes b) noexcept { return a += b; }

  [[nodiscard]] friend constexpr Bytes operator-(Bytes a, Bytes b) noexcept { return a -= b; }
};

/// `a + b`, or nothing if the sum does not fit.
[[nodiscard]] constexpr std::optional<Bytes> checked_add(Bytes a, Bytes b) noexcept {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a.value, b.value, &sum)) {
    return std::nullopt;
  }
  return Bytes{sum};
}

/// `a * factor`, or nothing if the product does not fit.
[[nodiscard]] constexpr std::optional<Bytes> checked_mul(Bytes a, std::uint64_t factor) noexcept {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a.value, factor, &product)) {
    return std::nullopt;
  }
  return Bytes{product};
}

/// `a + b`, or `Bytes::max()`. For reports only: admission never saturates.
[[nodiscard]] constexpr Bytes saturating_add(Bytes a, Bytes b) noexcept {
  return checked_add(a, b).value_or(Bytes::max());
}

/// `a * factor`, or `Bytes::max()`. For reports and plans only.
[[nodiscard]] constexpr Bytes saturating_mul(Bytes a, std::uint64_t factor) noexcept {
  return checked_mul(a, factor).value_or(Bytes::max());
}

/// `a - b`, or zero if `b` is larger.
[[nodiscard]] constexpr Bytes saturating_sub(Bytes a, Bytes b) noexcept {
  return a > b ? Bytes{a.value - b.value} : Bytes{};
}

/// `a * factor`; stops the program if the product does not fit.
[[nodiscard]] constexpr Bytes operator*(Bytes a, std::uint64_t factor) noexcept {
  const auto product = checked_mul(a, factor);
  MEMSTRATA_VERIFY(product.has_value(), "product of bytes wraps", a.value, factor);
  return *product;
}

[[nodiscard]] constexpr bool is_power_of_two(std::uint64_t value) noexcept {
  return value != 0 && (value & (value - 1)) == 0;
}

/// Whether `bytes` is a whole number of `unit` (any unit above zero).
[[nodiscard]] constexpr bool is_multiple(Bytes bytes, Bytes unit) noexcept {
  return unit.value != 0 && bytes.value % unit.value == 0;
}

/// The largest multiple of `unit` that is not above `bytes`. `unit` is above zero.
[[nodiscard]] constexpr Bytes align_down(Bytes bytes, Bytes unit) noexcept {
  return Bytes{bytes.value - bytes.value % unit.value};
}

/// The smallest multiple of `unit` that is not below `bytes`, or nothing if it does not fit. `unit` is above zero.
[[nodiscard]] constexpr std::optional<Bytes> align_up(Bytes bytes, Bytes unit) noexcept {
  const std::uint64_t rest = bytes.value % unit.value;
  return rest == 0 ? bytes : checked_add(bytes, Bytes{unit.value - rest});
}

/// A half-open range of bytes `[offset, offset + size)` inside something larger.
struct ByteRange {
  Bytes offset;
  Bytes size;

  [[nodiscard]] friend constexpr bool operator==(ByteRange, ByteRange) noexcept = default;

  /// One past the last byte; stops the program if it cannot be represented. Check input with `checked_end`.
  [[nodiscard]] constexpr Bytes end() const noexcept { return offset + size; }

  [[nodiscard]] constexpr std::optional<Bytes> checked_end() const noexcept {
    return checked_add(offset, size);
  }

  [[nodiscard]] constexpr bool empty() const noexcept { return size == Bytes{}; }

  [[nodiscard]] constexpr bool contains(ByteRange other) const noexcept {
    return other.offset >= offset && other.end() <= end();
  }

  [[nodiscard]] constexpr bool overlaps(ByteRange other) const noexcept {
    return !empty() && !other.empty() && offset < other.end() && other.offset < end();
  }
};

inline namespace literals {

[[nodiscard]] constexpr Bytes operator""_B(unsigned long long value) noexcept {
  return Bytes{value};
}

[[nodiscard]] constexpr Bytes operator""_KiB(unsigned long long value) noexcept {
  return Bytes{1ULL << 10} * value;
}

[[nodiscard]] constexpr Bytes operator""_MiB(unsigned long long value) noexcept {
  return Bytes{1ULL << 20} * value;
}

[[nodiscard]] constexpr Bytes operator""_GiB(unsigned long long value) noexcept {
  return Bytes{1ULL << 30} * value;
}

[[nodiscard]] constexpr Bytes operator""_TiB(unsigned long long value) noexcept {
  return Bytes{1ULL << 40} * value;
}

}  // namespace literals

}  // namespace memstrata
