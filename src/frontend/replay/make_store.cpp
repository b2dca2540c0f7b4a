// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <utility>

#include "frontend/replay/holding.hpp"
#include "frontend/replay/kv_mechanism.hpp"
#include "frontend/replay/kv_memory.hpp"
#include "frontend/replay/kv_store.hpp"
#include "frontend/replay/moving_store.hpp"
#include "frontend/replay/paged_store.hpp"
#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/virtual_store.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"

namespace memstrata::replay_detail {
namespace {

/// Address space for as many pages as the limit holds, and one more.
Result<std::optional<PagePool>, KvStoreError> make_pool(Workbench& bench,
                                                        KvMemory& memory,
                                                        Bytes page) {
  if (page == Bytes{}) {
    return std::nullopt;
  }
  const OpTimer timer(bench, TimedOp::reserve);
  MEMSTRATA_TRY(auto backing, bench.make_backing(page));
  const Bytes limit = bench.options().limit.value_or(Bytes{});
  MEMSTRATA_TRY(
      auto range,
      KvPool::reserve(
          backing, align_down(limit, page) + page, bench.governor(), Workbench::terms(0)));
  MEMSTRATA_TRY(auto owned,
                memory.own(std::move(range),
                           {.kind = ReplayAllocationKind::pool, .request = 0, .backing = backing}));
  return PagePool(std::move(owned), page);
}

}  // namespace

Result<std::unique_ptr<KvStore>, KvStoreError> make_store(ReplayPolicy policy,
                                                          const ReplayInput& input,
                                                          const Holding& holding,
                                                          Workbench& bench,
                                                          KvMemory& memory) {
  switch (policy) {
    case ReplayPolicy::paged: {
      MEMSTRATA_TRY(auto full, make_pool(bench, memory, holding.page()));
      MEMSTRATA_TRY(auto sliding, make_pool(bench, memory, holding.sliding_page()));
      return std::make_unique<PagedStore>(
          input, bench, memory, std::move(full), std::move(sliding));
    }
    case ReplayPolicy::virtual_memory: {
      MEMSTRATA_TRY(auto backing, bench.make_backing(bench.options().granule));
      return std::make_unique<VirtualStore>(input, holding, bench, memory, std::move(backing));
    }
    case ReplayPolicy::reserve_max:
    case ReplayPolicy::realloc: {
      MEMSTRATA_TRY(auto backing, bench.make_backing(bench.options().granule));
      return std::make_unique<MovingStore>(holding, bench, memory, std::move(backing));
    }
    case ReplayPolicy::concat:
      break;
  }
  return fail(KvStoreError(MemoryError(InvalidRequest{
      .tier = Tier::host, .requested = {}, .reason = "this policy has no store in memory"})));
}

}  // namespace memstrata::replay_detail
