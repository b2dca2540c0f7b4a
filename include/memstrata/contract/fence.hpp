// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "memstrata/core/result.hpp"

namespace memstrata {

/// Whether the device work before a mark has ended.
enum class FenceState : std::uint8_t {
  pending,
  completed,
  failed,  ///< The work ended in an error of its own; nobody knows whether it still touches memory.
  lost,    ///< The device is lost.
};

[[nodiscard]] std::string_view to_string(FenceState state) noexcept;

/// A mark in the work of a device, such as an event in a stream. Once it is anything but pending it stays so.
/// Thread-safe.
class Fence {
 public:
  Fence() = default;
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  Fence(Fence&&) = delete;
  Fence& operator=(Fence&&) = delete;
  virtual ~Fence() = default;

  /// The state now. Never waits.
  [[nodiscard]] virtual FenceState state() const noexcept = 0;
};

/// The marks that guard one release: all must be completed before memory may go. At most `most`, one for each
/// stream that a device works on. Move-only.
class FenceSet {
 public:
  /// Streams that one release can wait for. *Source:* a compute, a copy-in and a copy-out stream and one to spare.
  static constexpr std::size_t most = 4;

  FenceSet() noexcept = default;

  FenceSet(FenceSet&& other) noexcept { take(other); }

  FenceSet& operator=(FenceSet&& other) noexcept {
    if (this != &other) {
      clear();
      take(other);
    }
    return *this;
  }

  FenceSet(const FenceSet&) = delete;
  FenceSet& operator=(const FenceSet&) = delete;
  ~FenceSet() = default;

  /// Adds a mark. There is room for `most`; one more stops the program.
  void add(std::shared_ptr<Fence> fence) noexcept;

  [[nodiscard]] std::span<const std::shared_ptr<Fence>> fences() const noexcept {
    return {fences_.data(), size_};
  }

  /// Lost if any is lost, else failed if any failed, else pending if any is pending, else completed. A set
  /// without marks is completed.
  [[nodiscard]] FenceState state() const noexcept;

 private:
  void clear() noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      fences_[i].reset();
    }
    size_ = 0;
  }

  void take(FenceSet& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    for (std::size_t i = 0; i < size_; ++i) {
      fences_[i] = std::move(other.fences_[i]);
    }
  }

  std::array<std::shared_ptr<Fence>, most> fences_;
  std::size_t size_ = 0;
};

/// Marks the ends of a device's streams as they are now. Thread-safe.
class FenceSource {
 public:
  FenceSource() = default;
  FenceSource(const FenceSource&) = delete;
  FenceSource& operator=(const FenceSource&) = delete;
  FenceSource(FenceSource&&) = delete;
  FenceSource& operator=(FenceSource&&) = delete;
  virtual ~FenceSource() = default;

  /// Adds one mark per stream. Never waits for the device. On failure nothing has to be undone and the release
  /// stays with whoever wanted it guarded.
  [[nodiscard]] virtual Result<void> record(FenceSet& into) = 0;
};

}  // namespace memstrata
