// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace memstrata::host::detail {

/// The links of a record; a record is in at most one list.
template <class Record>
struct RecordLinks {
  Record* previous = nullptr;
  Record* next = nullptr;
};

/// A list through the records themselves, so that joining and leaving one cannot fail. Owns nothing.
/// Single-threaded.
template <class Record>
class RecordList {
 public:
  [[nodiscard]] Record* front() const noexcept { return first_; }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  void add(Record& record) noexcept {
    record.links = {.previous = nullptr, .next = first_};
    if (first_ != nullptr) {
      first_->links.previous = &record;
    }
    first_ = &record;
    ++size_;
  }

  void remove(Record& record) noexcept {
    if (record.links.previous != nullptr) {
      record.links.previous->links.next = record.links.next;
    } else {
      first_ = record.links.next;
    }
    if (record.links.next != nullptr) {
      record.links.next->links.previous = record.links.previous;
    }
    record.links = {};
    --size_;
  }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (Record* record = first_; record != nullptr; record = record->links.next) {
      visit(*record);
    }
  }

 private:
  Record* first_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace memstrata::host::detail
