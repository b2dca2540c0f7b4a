// SPDX-License-Identifier: Apache-2.0
// Everything that a C++ user needs.
#pragma once

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
