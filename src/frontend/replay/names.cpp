// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/names.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "memstrata/frontend/replay/find_limit.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"

namespace memstrata {
namespace replay_detail {

bool same_name(std::string_view a, std::string_view b) noexcept {
  const auto lower = [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  };
  return std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace replay_detail

std::string_view to_string(ReplayPolicy policy) noexcept {
  switch (policy) {
    case ReplayPolicy::reserve_max:
      return "reserve-max";
    case ReplayPolicy::realloc:
      return "realloc";
    case ReplayPolicy::concat:
      return "concat";
    case ReplayPolicy::paged:
      return "paged";
    case ReplayPolicy::virtual_memory:
      return "virtual";
  }
  std::unreachable();
}

std::optional<ReplayPolicy> parse_replay_policy(std::string_view name) noexcept {
  for (const ReplayPolicy policy : all_replay_policies) {
    if (replay_detail::same_name(to_string(policy), name)) {
      return policy;
    }
  }
  return std::nullopt;
}

std::string_view systems_of(ReplayPolicy policy) noexcept {
  switch (policy) {
    case ReplayPolicy::reserve_max:
      return "llama.cpp";
    case ReplayPolicy::realloc:
      return "growable arrays (std::vector, doubling tensors)";
    case ReplayPolicy::concat:
      return "dynamic caches of Python frameworks";
    case ReplayPolicy::paged:
      return "vLLM (needs kernels that read a block table)";
    case ReplayPolicy::virtual_memory:
      return "memstrata";
  }
  std::unreachable();
}

std::string_view to_string(ReplayBacking backing) noexcept {
  switch (backing) {
    case ReplayBacking::sim:
      return "sim";
    case ReplayBacking::real:
      return "real";
  }
  std::unreachable();
}

std::optional<ReplayBacking> parse_replay_backing(std::string_view name) noexcept {
  for (const ReplayBacking backing : {ReplayBacking::sim, ReplayBacking::real}) {
    if (replay_detail::same_name(to_string(backing), name)) {
      return backing;
    }
  }
  return std::nullopt;
}

std::vector<ReplayPolicy> policies_for_all(ReplayBacking backing) {
  std::vector<ReplayPolicy> policies(all_replay_policies.begin(), all_replay_policies.end());
  if (backing == ReplayBacking::real) {
    std::erase(policies, ReplayPolicy::concat);
  }
  return policies;
}

std::string_view to_string(LimitMetric metric) noexcept {
  switch (metric) {
    case LimitMetric::wait_p50:
      return "wait_p50";
    case LimitMetric::wait_p95:
      return "wait_p95";
    case LimitMetric::wait_p99:
      return "wait_p99";
    case LimitMetric::preempted:
      return "preempted";
    case LimitMetric::refused:
      return "refused";
  }
  std::unreachable();
}

std::string_view to_string(ReplayAllocationKind kind) noexcept {
  switch (kind) {
    case ReplayAllocationKind::sequence:
      return "sequence";
    case ReplayAllocationKind::sliding:
      return "sliding";
    case ReplayAllocationKind::block:
      return "block";
    case ReplayAllocationKind::pool:
      return "pool";
  }
  std::unreachable();
}

}  // namespace memstrata
