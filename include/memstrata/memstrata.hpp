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
#include "memstrata/governance/lease_ledger.hpp"
#include "memstrata/governance/ledger_governor.hpp"
#include "memstrata/mechanism/host/host_allocator.hpp"
#include "memstrata/mechanism/host/host_virtual_allocator.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "memstrata/structure/virtual_range.hpp"
