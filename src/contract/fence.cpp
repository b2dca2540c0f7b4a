// SPDX-License-Identifier: Apache-2.0
#include "memstrata/contract/fence.hpp"

#include <memory>
#include <string_view>
#include <utility>

#include "memstrata/core/check.hpp"

namespace memstrata {

std::string_view to_string(FenceState state) noexcept {
  switch (state) {
    case FenceState::pending:
      return "pending";
    case FenceState::completed:
      return "completed";
    case FenceState::failed:
      return "failed";
    case FenceState::lost:
      return "lost";
  }
  std::unreachable();
}

void FenceSet::add(std::shared_ptr<Fence> fence) noexcept {
  MEMSTRATA_VERIFY(fence != nullptr, "a fence set was given no fence");
  MEMSTRATA_VERIFY(size_ < most, "a fence set is full", size_, most);
  fences_[size_++] = std::move(fence);
}

FenceState FenceSet::state() const noexcept {
  FenceState all = FenceState::completed;
  for (const std::shared_ptr<Fence>& fence : fences()) {
    switch (fence->state()) {
      case FenceState::lost:
        return FenceState::lost;
      case FenceState::failed:
        all = FenceState::failed;
        break;
      case FenceState::pending:
        all = all == FenceState::failed ? all : FenceState::pending;
        break;
      case FenceState::completed:
        break;
    }
  }
  return all;
}

}  // namespace memstrata
