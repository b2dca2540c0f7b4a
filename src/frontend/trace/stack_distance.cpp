// SPDX-License-Identifier: Apache-2.0
#include "frontend/trace/stack_distance.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace memstrata::detail {
namespace {

constexpr std::size_t lowest_bit(std::size_t value) noexcept {
  return value & (~value + 1);
}

}  // namespace

std::optional<std::uint64_t> StackDistance::use(std::uint32_t key) {
  if (used_ == tree_.size()) {
    move_together();
  }
  const bool is_new = key == position_.size();
  if (is_new) {
    position_.push_back(0);
  }
  std::optional<std::uint64_t> distance;
  if (!is_new) {
    distance = position_.size() - marks_up_to(position_[key]);
    add(position_[key], -1);
  }
  owner_[used_] = key;
  position_[key] = ++used_;
  add(used_, 1);
  return distance;
}

void StackDistance::move_together() {
  const std::size_t keys = position_.size();
  const std::size_t room = std::max<std::size_t>(1024, keys * 2);
  std::vector<std::uint32_t> owner(room);
  std::vector<std::uint32_t> tree(room);
  std::size_t next = 0;
  for (std::size_t position = 1; position <= used_; ++position) {
    const std::uint32_t key = owner_[position - 1];
    if (position_[key] == position) {
      owner[next] = key;
      ++next;
    }
  }
  for (std::size_t position = 1; position <= next; ++position) {
    position_[owner[position - 1]] = position;
  }
  // Marks stand at 1 to `next`; a node covers as many positions as its lowest bit says.
  for (std::size_t node = 1; node <= room; ++node) {
    const std::size_t first = node - lowest_bit(node);
    tree[node - 1] = static_cast<std::uint32_t>(std::min(node, next) - std::min(first, next));
  }
  owner_ = std::move(owner);
  tree_ = std::move(tree);
  used_ = next;
}

void StackDistance::add(std::size_t position, std::int32_t change) noexcept {
  for (; position <= tree_.size(); position += lowest_bit(position)) {
    tree_[position - 1] += static_cast<std::uint32_t>(change);
  }
}

std::uint64_t StackDistance::marks_up_to(std::size_t position) const noexcept {
  std::uint64_t marks = 0;
  for (; position > 0; position -= lowest_bit(position)) {
    marks += tree_[position - 1];
  }
  return marks;
}

}  // namespace memstrata::detail
