// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace memstrata {

/// The typed error below an error. A caller gets it back as the type that was put in, without a wrapper:
/// `if (const auto* below = cause.target<MemoryError>())`. Empty if there is none. Copies share the cause.
/// Thread-compatible.
class ErrorCause {
 public:
  ErrorCause() noexcept = default;

  /// Keeps `error`, which has a `message()`. Without memory for it the cause stays empty.
  template <class E>
  [[nodiscard]] static ErrorCause of(E error) noexcept {
    ErrorCause cause;
    try {
      cause.held_ = std::make_shared<const Holder<E>>(std::move(error));
    } catch (const std::exception&) {
      cause.held_ = nullptr;
    }
    return cause;
  }

  [[nodiscard]] bool empty() const noexcept { return held_ == nullptr; }

  /// The cause as an `E`, or null if it is of another type or there is none. Owned by this object.
  template <class E>
  [[nodiscard]] const E* target() const noexcept {
    if (held_ == nullptr || held_->tag() != &type_tag<std::remove_cv_t<E>>) {
      return nullptr;
    }
    return &static_cast<const Holder<std::remove_cv_t<E>>&>(*held_).error;
  }

  /// The sentence of the cause, or nothing.
  [[nodiscard]] std::string message() const {
    return held_ == nullptr ? std::string() : held_->message();
  }

 private:
  template <class E>
  static constexpr char type_tag = 0;

  struct Base {
    Base() = default;
    Base(const Base&) = delete;
    Base& operator=(const Base&) = delete;
    Base(Base&&) = delete;
    Base& operator=(Base&&) = delete;
    virtual ~Base() = default;
    [[nodiscard]] virtual const void* tag() const noexcept = 0;
    [[nodiscard]] virtual std::string message() const = 0;
  };

  template <class E>
  struct Holder final : Base {
    explicit Holder(E value) : error(std::move(value)) {}

    [[nodiscard]] const void* tag() const noexcept override { return &type_tag<E>; }

    [[nodiscard]] std::string message() const override { return error.message(); }

    E error;
  };

  std::shared_ptr<const Base> held_;
};

}  // namespace memstrata
