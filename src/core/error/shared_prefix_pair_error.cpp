// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/shared_prefix_pair_error.hpp"

#include <fmt/format.h>

#include <string>
#include <variant>

namespace memstrata {
namespace {

std::string sentence(const PairRefused& error) {
  return fmt::format(
      "the prefixes of keys and values were not mapped and nothing was kept, a private copy is a "
      "safe fallback: {}",
      error.cause.message());
}

std::string sentence(const PairRollbackFailed& error) {
  return fmt::format(
      "the prefix of the values was not mapped ({}) and the prefix of the keys could not be "
      "unmapped again ({}); release the allocation of the keys, do not fall back to a private copy "
      "in it",
      error.cause.message(),
      error.rollback.message());
}

}  // namespace

std::string SharedPrefixPairError::message() const {
  return std::visit([](const auto& alternative) { return sentence(alternative); }, kind);
}

}  // namespace memstrata
