// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace memstrata::test {

/// Where foreign code runs.
enum class Site : std::uint8_t {
  allocate,
  release,
  capability,
  batch,    ///< The batch commit, which can stop after its first range.
  query,    ///< A call that can neither fail nor throw.
  destroy,  ///< The destructor of something that was registered, of a prefix or of a pin.
  enqueue,
  record,
  fence,
  pin,
  view,
  idle,
};

/// What goes wrong there.
enum class Fault : std::uint8_t {
  refuse,
  stop_midway,  ///< A part is done; a queue destroys the request, a fence is lost.
  claim,        ///< A queue says that it took a request and left it.
  throw_error,
  throw_other,
  lose,  ///< The device is lost while the call runs, which then succeeds.
  lose_and_refuse,
  lose_and_throw,
};

inline constexpr Fault all_faults[] = {
    // NOLINT(modernize-avoid-c-arrays): a constant list
    Fault::refuse,
    Fault::stop_midway,
    Fault::claim,
    Fault::throw_error,
    Fault::throw_other,
    Fault::lose,
    Fault::lose_and_refuse,
    Fault::lose_and_throw,
};

[[nodiscard]] constexpr bool loses(Fault fault) noexcept {
  return fault == Fault::lose || fault == Fault::lose_and_refuse || fault == Fault::lose_and_throw;
}

[[nodiscard]] constexpr bool throws(Fault fault) noexcept {
  return fault == Fault::throw_error || fault == Fault::throw_other ||
         fault == Fault::lose_and_throw;
}

/// Whether `fault` can happen at `site`.
[[nodiscard]] constexpr bool possible(Site site, Fault fault) noexcept {
  switch (site) {
    case Site::query:
    case Site::destroy:
      return fault == Fault::lose;
    case Site::fence:
      return !throws(fault) && fault != Fault::claim;
    case Site::idle:
      return fault == Fault::refuse || fault == Fault::lose || fault == Fault::lose_and_refuse;
    case Site::view:
      return throws(fault) || fault == Fault::lose;
    case Site::release:
    case Site::batch:
      return fault != Fault::claim;
    case Site::enqueue:
      return true;
    case Site::allocate:
    case Site::capability:
    case Site::record:
    case Site::pin:
      return fault != Fault::claim && fault != Fault::stop_midway;
  }
  std::unreachable();
}

/// What a double does after it told the injector of its call.
enum class Conduct : std::uint8_t { ordinary, refuse, stop_midway, claim };

/// Counts every call of foreign code in one sequence and lets one fault happen at one of them. At each call it first
/// runs `at_every_call`, which may call back into the stack. Single-threaded.
class Injector {
 public:
  std::function<void()> at_every_call;
  std::function<void()> lose_device;

  /// The `nth` call from now on (1 = the next) meets `fault`, if it can happen there.
  void arm(std::uint64_t nth, Fault fault) {
    sites_.clear();
    armed_ = nth;
    fault_ = fault;
    fired_ = false;
  }

  /// No fault from now on; counting begins again.
  void disarm() { arm(0, Fault::refuse); }

  [[nodiscard]] bool fired() const noexcept { return fired_; }

  /// The calls so far, in order.
  [[nodiscard]] const std::vector<Site>& sites() const noexcept { return sites_; }

  [[nodiscard]] Conduct call(Site site) {
    sites_.push_back(site);
    const bool now = sites_.size() == armed_ && possible(site, fault_);
    if (at_every_call) {
      at_every_call();
    }
    if (!now) {
      return Conduct::ordinary;
    }
    fired_ = true;
    if (loses(fault_)) {
      lose_device();
    }
    if (fault_ == Fault::throw_other) {
      throw 42;  // NOLINT(hicpp-exception-baseclass): foreign code throws what it likes
    }
    if (throws(fault_)) {
      throw std::runtime_error("injected");
    }
    switch (fault_) {
      case Fault::refuse:
      case Fault::lose_and_refuse:
        return Conduct::refuse;
      case Fault::stop_midway:
        return Conduct::stop_midway;
      case Fault::claim:
        return Conduct::claim;
      case Fault::throw_error:
      case Fault::throw_other:
      case Fault::lose:
      case Fault::lose_and_throw:
        return Conduct::ordinary;
    }
    std::unreachable();
  }

  /// At a site where only the loss of the device can happen.
  void pass(Site site) noexcept { static_cast<void>(call(site)); }

 private:
  std::vector<Site> sites_;
  std::uint64_t armed_ = 0;
  Fault fault_ = Fault::refuse;
  bool fired_ = false;
};

}  // namespace memstrata::test
