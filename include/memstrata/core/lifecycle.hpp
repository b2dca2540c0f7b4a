// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace memstrata {

/// What a registered mechanism may still do. Nothing leads back to `active`.
enum class MechanismLifecycle : std::uint8_t {
  active,
  retired,      ///< No new work; what is live can still be released.
  device_lost,  ///< No call reaches the allocator any more; what is held stays on the books.
  terminated,   ///< The context is known to be gone, and with it the memory.
};

enum class MechanismEvent : std::uint8_t { retire, invalidate_device, confirm_context_terminated };

/// The state after `event`, which may be the same one; nothing if `state` does not allow the event.
[[nodiscard]] constexpr std::optional<MechanismLifecycle> next(MechanismLifecycle state,
                                                               MechanismEvent event) noexcept {
  switch (event) {
    case MechanismEvent::retire:
      return state == MechanismLifecycle::active ? MechanismLifecycle::retired : state;
    case MechanismEvent::invalidate_device:
      return state == MechanismLifecycle::terminated ? state : MechanismLifecycle::device_lost;
    case MechanismEvent::confirm_context_terminated:
      return state == MechanismLifecycle::device_lost
                 ? std::optional(MechanismLifecycle::terminated)
                 : std::nullopt;
  }
  std::unreachable();
}

[[nodiscard]] std::string_view to_string(MechanismLifecycle state) noexcept;

/// What a registered provider context may still do. Nothing leads back to `active`.
enum class ProviderContextLifecycle : std::uint8_t {
  active,
  retiring,     ///< No new mechanism and no new pin; waiting for what is there to end.
  device_lost,  ///< Its device was lost; its end is not yet confirmed.
  terminated,   ///< Known to be gone.
};

enum class ProviderContextEvent : std::uint8_t {
  retire,
  invalidate_device,
  confirm_context_terminated,
};

/// The state after `event`, which may be the same one; nothing if `state` does not allow the event.
[[nodiscard]] constexpr std::optional<ProviderContextLifecycle> next(
    ProviderContextLifecycle state,
    ProviderContextEvent event) noexcept {
  switch (event) {
    case ProviderContextEvent::retire:
      return state == ProviderContextLifecycle::active ? ProviderContextLifecycle::retiring : state;
    case ProviderContextEvent::invalidate_device:
      return state == ProviderContextLifecycle::terminated ? state
                                                           : ProviderContextLifecycle::device_lost;
    case ProviderContextEvent::confirm_context_terminated:
      return state == ProviderContextLifecycle::device_lost
                 ? std::optional(ProviderContextLifecycle::terminated)
                 : std::nullopt;
  }
  std::unreachable();
}

[[nodiscard]] std::string_view to_string(ProviderContextLifecycle state) noexcept;

/// How far allocation, capabilities and release of a mechanism are known to be one thing. Recorded and reported;
/// nothing else depends on it.
enum class MechanismCoherence : std::uint8_t {
  self_contained,  ///< One implementation supplies everything.
  trusted_composite,  ///< Whoever registered it vouches that a wrapper routes all of it to one mechanism.
};

[[nodiscard]] std::string_view to_string(MechanismCoherence coherence) noexcept;

}  // namespace memstrata
