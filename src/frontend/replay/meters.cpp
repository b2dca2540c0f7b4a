// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/meters.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"

namespace memstrata::replay_detail {
namespace {

void raise(Bytes& peak, Bytes value) noexcept {
  peak = std::max(peak, value);
}

void raise(std::uint64_t& peak, std::uint64_t value) noexcept {
  peak = std::max(peak, value);
}

void merge(TimeSample& into, const TimeSample& later) noexcept {
  into.end = later.end;
  raise(into.live, later.live);
  raise(into.committed, later.committed);
  into.cached = later.cached;
  raise(into.reserved, later.reserved);
  raise(into.queued, later.queued);
  raise(into.running, later.running);
  into.hit_blocks = later.hit_blocks;
  into.block_refs = later.block_refs;
}

}  // namespace

void ReplayMeters::note(const ReplayState& state) noexcept {
  raise(peak_.reserved, state.reserved);
  raise(peak_.committed, state.committed);
  raise(peak_.cached, state.cached);
  raise(peak_.live, state.live);
  raise(peak_.saved, state.saved);
  raise(peak_.live_tokens, state.live_tokens);
  raise(peak_.running, state.running);
  raise(open_.live, state.live);
  raise(open_.committed, state.committed);
  raise(open_.reserved, state.reserved);
  raise(open_.queued, state.queued);
  raise(open_.running, state.running);
}

void ReplayMeters::advance(const ReplayState& state, std::int64_t now_ns) {
  const auto duration = static_cast<long double>(now_ns - now_ns_);
  held_integral_ +=
      duration * static_cast<long double>(saturating_sub(state.committed, state.cached).value);
  live_integral_ += duration * static_cast<long double>(state.live.value);
  while (now_ns > interval_end_ns_) {
    close_interval(state);
  }
  now_ns_ = now_ns;
}

void ReplayMeters::close_interval(const ReplayState& state) {
  open_.end = std::chrono::nanoseconds(interval_end_ns_);
  open_.cached = state.cached;
  open_.hit_blocks = state.hit_blocks;
  open_.block_refs = state.block_refs;
  series_.samples.push_back(open_);
  if (series_.samples.size() == TimeSeries::most_samples) {
    halve();
  }
  interval_end_ns_ = series_.samples.back().end.count() + interval_ns_;
  open_ = TimeSample{};
  note(state);
}

void ReplayMeters::halve() {
  auto& samples = series_.samples;
  for (std::size_t pair = 0; pair < samples.size() / 2; ++pair) {
    samples[pair] = samples[2 * pair];
    merge(samples[pair], samples[2 * pair + 1]);
  }
  samples.resize(samples.size() / 2);
  interval_ns_ *= 2;
}

void ReplayMeters::finish(const ReplayState& state, std::int64_t end_ns, PolicyResult& result) {
  advance(state, end_ns);
  close_interval(state);
  series_.samples.back().end = std::chrono::nanoseconds(end_ns);
  series_.interval = std::chrono::nanoseconds(interval_ns_);
  result.series = std::move(series_);
  result.peak_concurrent = peak_.running;
  result.peak_live_tokens = peak_.live_tokens;
  result.bytes.peak_reserved = peak_.reserved;
  result.bytes.peak_leased = peak_.committed;
  result.bytes.peak_committed = peak_.committed;
  result.bytes.peak_live = peak_.live;
  result.bytes.peak_cached = peak_.cached;
  result.bytes.shared_saved = peak_.saved;
  result.waste_ratio =
      live_integral_ > 0 ? static_cast<double>(held_integral_ / live_integral_) : 1.0;
}

}  // namespace memstrata::replay_detail
