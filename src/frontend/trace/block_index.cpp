// SPDX-License-Identifier: Apache-2.0
#include "frontend/trace/block_index.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace memstrata::detail {
namespace {

// The finalizer of splitmix64: every bit of the key reaches the low bits that choose a slot.
constexpr std::uint64_t mix(std::uint64_t key) noexcept {
  key = (key ^ (key >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  key = (key ^ (key >> 27U)) * 0x94d049bb133111ebULL;
  return key ^ (key >> 31U);
}

}  // namespace

std::size_t BlockIndex::slot_of(std::uint64_t key) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = mix(key) & mask;
  while (slots_[slot] != 0 && keys_[slots_[slot] - 1] != key) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

std::optional<std::uint32_t> BlockIndex::find(std::uint64_t key) const noexcept {
  if (slots_.empty()) {
    return std::nullopt;
  }
  const std::uint32_t held = slots_[slot_of(key)];
  return held == 0 ? std::nullopt : std::optional(held - 1);
}

BlockIndex::Place BlockIndex::insert(std::uint64_t key) {
  if (const auto known = find(key)) {
    return {.index = *known, .is_new = false};
  }
  if (keys_.size() >= std::numeric_limits<std::uint32_t>::max() - 1) {
    throw std::length_error("too many different keys");
  }
  if ((keys_.size() + 1) * 4 > slots_.size() * 3) {
    grow();
  }
  const std::size_t slot = slot_of(key);
  keys_.push_back(key);
  slots_[slot] = static_cast<std::uint32_t>(keys_.size());
  return {.index = static_cast<std::uint32_t>(keys_.size() - 1), .is_new = true};
}

// The last key was put behind every other one on its probe path, so emptying its slot breaks no path; `grow` keeps
// that true because it places the keys in order.
void BlockIndex::pop() noexcept {
  slots_[slot_of(keys_.back())] = 0;
  keys_.pop_back();
}

void BlockIndex::grow() {
  std::vector<std::uint32_t> wider(std::max<std::size_t>(64, slots_.size() * 2), 0);
  const std::size_t mask = wider.size() - 1;
  for (std::size_t index = 0; index < keys_.size(); ++index) {
    std::size_t slot = mix(keys_[index]) & mask;
    while (wider[slot] != 0) {
      slot = (slot + 1) & mask;
    }
    wider[slot] = static_cast<std::uint32_t>(index + 1);
  }
  slots_ = std::move(wider);
}

}  // namespace memstrata::detail
