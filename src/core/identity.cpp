// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/identity.hpp"

#include "memstrata/core/check.hpp"

namespace memstrata {
namespace {

constinit SerialSource authority_serials;

}  // namespace

MemoryAuthorityId MemoryAuthorityId::issue(DeviceKey device) noexcept {
  const auto serial = authority_serials.issue();
  MEMSTRATA_VERIFY(serial.has_value(), "the authority serials of this process are used up");
  return {.device = device, .serial = *serial};
}

}  // namespace memstrata
