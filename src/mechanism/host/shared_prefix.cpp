// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/shared_prefix.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "mechanism/host/backing_state.hpp"
#include "mechanism/host/prefix_record.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host {

namespace detail {

PrefixReference::PrefixReference(const PrefixReference& other) noexcept : record_(other.record_) {
  if (record_ != nullptr) {
    record_->refer();
  }
}

PrefixReference& PrefixReference::operator=(const PrefixReference& other) noexcept {
  PrefixReference copy(other);
  std::swap(record_, copy.record_);
  return *this;
}

PrefixReference& PrefixReference::operator=(PrefixReference&& other) noexcept {
  PrefixReference taken(std::move(other));
  std::swap(record_, taken.record_);
  return *this;
}

PrefixReference::~PrefixReference() {
  release();
}

Bytes PrefixReference::release() noexcept {
  PrefixRecord* const record = std::exchange(record_, nullptr);
  if (record == nullptr || !record->unrefer()) {
    return {};
  }
  const Bytes size = record->size;
  // The state may live only through this record.
  const std::shared_ptr<BackingState> state = std::move(record->state);
  state->dispose(record);
  return size;
}

}  // namespace detail

Bytes Prefix::size() const noexcept {
  return reference_.record()->size;
}

PrefixBuilder::PrefixBuilder(PrefixBuilder&& other) noexcept = default;
PrefixBuilder& PrefixBuilder::operator=(PrefixBuilder&& other) noexcept = default;
PrefixBuilder::~PrefixBuilder() = default;

DeviceAddress PrefixBuilder::base() const noexcept {
  const detail::PrefixRecord* const record = reference_.record();
  return record == nullptr ? DeviceAddress{} : DeviceAddress{record->window};
}

std::byte* PrefixBuilder::data() const noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the record keeps addresses as numbers
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(base().value()));
}

Bytes PrefixBuilder::size() const noexcept {
  const detail::PrefixRecord* const record = reference_.record();
  return record == nullptr ? Bytes{} : record->size;
}

Result<Prefix, VirtualMemoryError> PrefixBuilder::seal() {
  detail::PrefixRecord* const record = reference_.record();
  if (record == nullptr) {
    return fail(PrefixRefused{.operation = "seal", .reason = "the builder holds nothing to seal"});
  }
  detail::BackingState& state = *record->state;
  const std::uint64_t place = record->window;
  if (const SystemResult unmapped = record->unmap_window(state); !unmapped.is_ok()) {
    return fail(detail::refused(SystemCallKind::unmap, unmapped.error));
  }
  if (record->own_file) {
    const SystemResult sealed =
        state.call({.kind = SystemCallKind::seal_file, .descriptor = record->own_file->writer()});
    if (!sealed.is_ok()) {
      if (place != 0 && record->map_window(state, place).is_ok()) {
        detail::process_mappings().add(1);
      }
      return fail(detail::refused(SystemCallKind::seal_file, sealed.error));
    }
    record->own_file->close_writer();
  }
  record->sealed = true;
  return Prefix(std::move(reference_));
}

}  // namespace memstrata::host
