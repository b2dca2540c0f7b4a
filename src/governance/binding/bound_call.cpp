// SPDX-License-Identifier: Apache-2.0
#include "governance/binding/bound_call.hpp"

#include <cstdint>
#include <exception>
#include <limits>

#include "governance/binding/mechanism_record.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/mechanism_ref.hpp"

namespace memstrata::detail {

BindingError thrown_by(const char* callback) noexcept {
  try {
    throw;
  } catch (const std::exception& thrown) {
    return CallbackFailed{.callback = callback, .reason = ErrorText::copy(thrown.what())};
  } catch (...) {
    return CallbackFailed{.callback = callback, .reason = "an exception of unknown type"};
  }
}

Result<BoundPin, BindingError> pin_owned(const MechanismRef& mechanism,
                                         std::uint64_t binding,
                                         OwnedRecord owned) {
  if (owned.mechanism != mechanism.get() || owned.record->binding != binding) {
    return fail(BindingError(
        BindingMismatch{.expected = mechanism->binding_identity(binding).id,
                        .actual = owned.mechanism->binding_identity(owned.record->binding).id}));
  }
  MEMSTRATA_TRY_VOID(mechanism->pin(*owned.record, owned.record->generation));
  return BoundPin(*mechanism, *owned.record);
}

Result<void, BindingError> check_range(ByteRange range, Bytes bytes) {
  const auto end = range.checked_end();
  if (!end || *end > bytes) {
    return fail(BindingError(
        ViewOutOfBounds{.offset = range.offset,
                        .end = end.value_or(Bytes{std::numeric_limits<std::uint64_t>::max()}),
                        .allocation_bytes = bytes}));
  }
  return {};
}

}  // namespace memstrata::detail
