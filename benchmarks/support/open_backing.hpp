// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"

namespace memstrata::bench {

/// How a backing for a measure is set up.
struct BackingShape {
  Bytes granule = 64_KiB;
  bool populate = false;
  bool huge = false;
  bool mapping_budget = true;
};

[[nodiscard]] inline host::PageBackingOptions options_of(BackingShape shape) {
  host::PageBackingOptions options;
  options.granule = shape.granule;
  options.populate = shape.populate;
  options.huge_pages = shape.huge;
  options.mapping_budget = shape.mapping_budget;
  return options;
}

[[nodiscard]] inline host::PageBacking open_backing(BackingShape shape) {
  auto backing = host::PageBacking::create(options_of(shape));
  MEMSTRATA_VERIFY(backing.has_value(), "the host backing of a measure could not be made");
  return std::move(*backing);
}

/// Stops the program if `result` is an error: a figure of a failed call means nothing.
template <class R>
decltype(auto) must(R&& result) {
  MEMSTRATA_VERIFY(result.has_value(), "a call of a measure failed");
  if constexpr (!std::is_void_v<typename std::remove_cvref_t<R>::value_type>) {
    return std::move(*result);
  }
}

}  // namespace memstrata::bench
