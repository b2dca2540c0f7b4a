// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/error_text.hpp"

#include <exception>
#include <memory>
#include <string>
#include <string_view>

namespace memstrata {

ErrorText ErrorText::copy(std::string_view text) noexcept {
  ErrorText result("(the explanation could not be stored: no memory)");
  try {
    result.owned_ = std::make_shared<const std::string>(text);
  } catch (const std::exception&) {
    result.owned_ = nullptr;
  }
  return result;
}

}  // namespace memstrata
