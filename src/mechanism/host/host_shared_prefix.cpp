// SPDX-License-Identifier: Apache-2.0
#include "mechanism/host/host_shared_prefix.hpp"

#include <atomic>
#include <memory>
#include <utility>

#include "mechanism/host/memory_refusal.hpp"
#include "mechanism/host/turn.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"

namespace memstrata::host {

HostSharedPrefix::HostSharedPrefix(std::shared_ptr<PageBacking> maker,
                                   PrefixBuilder builder,
                                   Bytes requested) noexcept
    : maker_(std::move(maker)),
      requested_(requested),
      mapped_(builder.size()),
      builder_(std::move(builder)),
      address_(builder_.base().value()) {}

const HostSharedPrefix* HostSharedPrefix::recognise(
    const SharedDevicePrefix& prefix,
    const std::shared_ptr<PageBacking>& maker) noexcept {
  if (prefix.type_tag() != &tag) {
    return nullptr;
  }
  const auto& own_class = static_cast<const HostSharedPrefix&>(prefix);
  return own_class.maker_ == maker ? &own_class : nullptr;
}

DeviceAddress HostSharedPrefix::address() const noexcept {
  // Relaxed: the number publishes nothing; who fills the window and who seals it agree between themselves.
  return DeviceAddress{address_.load(std::memory_order_relaxed)};
}

bool HostSharedPrefix::is_sealed() const noexcept {
  // Acquire pairs with release in `seal`: whoever sees true may read `sealed_`.
  return is_sealed_.load(std::memory_order_acquire);
}

Result<void> HostSharedPrefix::seal() {
  const TurnGuard turn(turn_);
  if (is_sealed()) {
    return fail(malformed(requested_, "the prefix is sealed already"));
  }
  auto prefix = builder_.seal();
  if (!prefix) {
    address_.store(builder_.base().value(), std::memory_order_relaxed);
    return fail(refusal(std::move(prefix).error(), mapped_));
  }
  sealed_.emplace(std::move(*prefix));
  address_.store(0, std::memory_order_relaxed);
  is_sealed_.store(true, std::memory_order_release);
  return {};
}

}  // namespace memstrata::host
