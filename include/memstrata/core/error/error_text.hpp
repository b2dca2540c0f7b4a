// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace memstrata {

/// A short explanation inside an error: a literal, or text shared by all copies. Building one never throws;
/// where the text cannot be stored, a literal that says so takes its place. Thread-compatible.
class ErrorText {
 public:
  constexpr ErrorText() noexcept = default;

  /// Refers to a string literal (or any text that lives as long as the program).
  template <std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor,modernize-avoid-c-arrays): a literal is an error text
  constexpr ErrorText(const char (&literal)[N]) noexcept : literal_(literal, N - 1) {}

  /// Copies `text`.
  [[nodiscard]] static ErrorText copy(std::string_view text) noexcept;

  [[nodiscard]] std::string_view view() const noexcept {
    return owned_ != nullptr ? std::string_view(*owned_) : literal_;
  }

  [[nodiscard]] bool empty() const noexcept { return view().empty(); }

 private:
  std::string_view literal_;
  std::shared_ptr<const std::string> owned_;
};

}  // namespace memstrata
