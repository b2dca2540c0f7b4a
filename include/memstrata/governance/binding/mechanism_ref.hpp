// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace memstrata::detail {

struct AllocationRecord;
class MechanismRecord;

/// A counted reference to a registered mechanism: it keeps the allocator, the authority and the context alive. The
/// last one, wherever it goes, destroys them in this order. Thread-compatible; copies may live on other threads.
class MechanismRef {
 public:
  MechanismRef() noexcept = default;

  /// Takes over one reference that was counted already.
  explicit MechanismRef(MechanismRecord* adopted) noexcept : record_(adopted) {}

  MechanismRef(const MechanismRef& other) noexcept : record_(other.record_) { retain(); }

  MechanismRef(MechanismRef&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}

  MechanismRef& operator=(const MechanismRef& other) noexcept {
    MechanismRef copy(other);
    std::swap(record_, copy.record_);
    return *this;
  }

  MechanismRef& operator=(MechanismRef&& other) noexcept {
    MechanismRef moved(std::move(other));
    std::swap(record_, moved.record_);
    return *this;
  }

  ~MechanismRef() { drop(); }

  [[nodiscard]] MechanismRecord* get() const noexcept { return record_; }

  [[nodiscard]] MechanismRecord& operator*() const noexcept { return *record_; }

  [[nodiscard]] MechanismRecord* operator->() const noexcept { return record_; }

  [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }

 private:
  void retain() const noexcept;
  void drop() const noexcept;

  MechanismRecord* record_ = nullptr;
};

}  // namespace memstrata::detail
