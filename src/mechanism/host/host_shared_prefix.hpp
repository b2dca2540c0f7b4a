// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "mechanism/host/turn.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"

namespace memstrata::host {

/// A prefix as the allocator hands it out: a window that is filled and, once sealed, a handle of the backing's
/// prefix. It keeps its backing alive, so that no other allocator can ever be mistaken for its maker.
/// Thread-safe; whoever fills the window does so before somebody seals it.
class HostSharedPrefix final : public SharedDevicePrefix {
 public:
  HostSharedPrefix(std::shared_ptr<PageBacking> maker,
                   PrefixBuilder builder,
                   Bytes requested) noexcept;

  /// `prefix` as this class, if it is one and was made by `maker`; else null.
  [[nodiscard]] static const HostSharedPrefix* recognise(
      const SharedDevicePrefix& prefix,
      const std::shared_ptr<PageBacking>& maker) noexcept;

  [[nodiscard]] DeviceAddress address() const noexcept override;

  [[nodiscard]] Bytes committed_physical_bytes() const noexcept override { return mapped_; }

  [[nodiscard]] Bytes mapped_bytes() const noexcept override { return mapped_; }

  [[nodiscard]] Bytes requested_bytes() const noexcept override { return requested_; }

  /// Errors: InvalidRequest if it is sealed already; AllocationFailed with the call that the kernel refused.
  [[nodiscard]] Result<void> seal() override;
  [[nodiscard]] bool is_sealed() const noexcept override;

  [[nodiscard]] const void* type_tag() const noexcept override { return &tag; }

  /// The backing's prefix. Only once it is sealed.
  [[nodiscard]] const Prefix& sealed() const noexcept { return *sealed_; }

 private:
  static constexpr char tag = 0;

  std::shared_ptr<PageBacking> maker_;
  Bytes requested_;
  Bytes mapped_;
  Turn turn_;  // for `seal`, which makes system calls
  PrefixBuilder builder_;
  std::optional<Prefix> sealed_;  // written once, before `is_sealed_`
  std::atomic<std::uint64_t> address_;
  std::atomic<bool> is_sealed_{false};
};

}  // namespace memstrata::host
