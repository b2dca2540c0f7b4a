// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/shareability.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"

namespace memstrata {
namespace {

[[nodiscard]] std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) noexcept {
  return saturating_mul(Bytes{a}, b).value;
}

}  // namespace

Bytes bytes_per_token(const KvShape& shape) noexcept {
  const PrefixFragments whole = prefix_fragments(shape, KvLayout::token_major);
  return whole.contiguous_bytes_per_token;
}

PrefixFragments prefix_fragments(const KvShape& shape, KvLayout layout) noexcept {
  const std::uint64_t tensors = saturating_product(shape.layers, 2);
  const Bytes head = saturating_mul(shape.element, shape.head_dim);
  const Bytes tensor = saturating_mul(head, shape.kv_heads);
  switch (layout) {
    case KvLayout::head_major:
      return {.fragments = saturating_product(tensors, shape.kv_heads),
              .contiguous_bytes_per_token = head};
    case KvLayout::seq_major:
      return {.fragments = tensors, .contiguous_bytes_per_token = tensor};
    case KvLayout::token_major:
      return {.fragments = 1, .contiguous_bytes_per_token = saturating_mul(tensor, tensors)};
  }
  std::unreachable();
}

Bytes Shareability::shared_bytes() const noexcept {
  return saturating_mul(granule, map_operations);
}

std::string Shareability::reason() const {
  if (is_shareable()) {
    return {};
  }
  if (granule == Bytes{}) {
    return "the platform cannot map shared memory: it has no granule";
  }
  return fmt::format(
      "each of the {} fragments of the prefix has {} bytes and does not fill one granule of {}; "
      "share a longer prefix, use a smaller granule, or a layout with fewer fragments",
      fragments,
      fragment_bytes.value,
      granule.value);
}

Shareability shareability(std::uint64_t fragments, Bytes fragment_bytes, Bytes granule) noexcept {
  const std::uint64_t whole = granule == Bytes{} ? 0 : fragment_bytes.value / granule.value;
  // Cannot wrap: `whole` granules are at most the fragment.
  const Bytes rest = fragment_bytes - granule * whole;
  return {.fragments = fragments,
          .fragment_bytes = fragment_bytes,
          .granule = granule,
          .granules_per_fragment = whole,
          .map_operations = saturating_product(fragments, whole),
          .waste = saturating_mul(rest, fragments)};
}

Shareability shareability(const KvShape& shape,
                          KvLayout layout,
                          std::uint64_t tokens,
                          Bytes granule) noexcept {
  const PrefixFragments parts = prefix_fragments(shape, layout);
  return shareability(
      parts.fragments, saturating_mul(parts.contiguous_bytes_per_token, tokens), granule);
}

std::uint64_t sequences_without_sharing(Bytes budget, Bytes prefix, Bytes owned) noexcept {
  const Bytes each = saturating_add(prefix, owned);
  MEMSTRATA_VERIFY(each != Bytes{}, "a sequence without bytes");
  return budget.value / each.value;
}

std::uint64_t sequences_with_sharing(Bytes budget, Bytes prefix, Bytes owned) noexcept {
  MEMSTRATA_VERIFY(owned != Bytes{}, "a sequence without bytes of its own");
  if (prefix > budget) {
    return 0;
  }
  return saturating_add(Bytes{(budget - prefix).value / owned.value}, Bytes{1}).value;
}

}  // namespace memstrata
