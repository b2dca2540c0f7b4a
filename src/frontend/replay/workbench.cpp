// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/workbench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/replay/call_recorder.hpp"
#include "frontend/replay/kv_pattern.hpp"
#include "frontend/replay/replay_input.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/governance/lease_ledger.hpp"
#include "memstrata/governance/ledger_governor.hpp"
#include "memstrata/mechanism/host/kernel_figure.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "memstrata/structure/physical_charge.hpp"

namespace memstrata::replay_detail {
namespace {

/// A kernel sample may differ from the books by this, or by 2 %: page tables and rounding of the kernel's own.
constexpr Bytes sample_tolerance = Bytes{8U << 20U};

Bytes distance(Bytes a, Bytes b) noexcept {
  return a > b ? a - b : b - a;
}

OpTimes summary(std::vector<std::uint64_t>& times) {
  OpTimes result{.calls = times.size()};
  if (times.empty()) {
    return result;
  }
  std::ranges::sort(times);
  const auto rank = [&times](std::size_t percent) {
    return times[std::max<std::size_t>((times.size() * percent + 99) / 100, 1) - 1];
  };
  result.p50_ns = rank(50);
  result.p99_ns = rank(99);
  result.max_ns = times.back();
  return result;
}

}  // namespace

Workbench::Workbench(const ReplayInput& input,
                     const ReplayOptions& options,
                     std::shared_ptr<host::SystemCalls> calls)
    : input_(input),
      options_(options),
      recorder_(options.record_calls.empty() ? nullptr : std::make_shared<CallRecorder>(calls)),
      calls_(recorder_ != nullptr ? recorder_ : std::move(calls)),
      governor_(std::make_shared<LedgerGovernor>(
          DeviceKey::host(),
          TierLimits().with(Tier::host, options.limit.value_or(Bytes{})))),
      full_(options.geometry, KvPattern::Layers::full, options.seed),
      sliding_(options.geometry, KvPattern::Layers::sliding, options.seed),
      full_row_(pattern_row(options.geometry, KvPattern::Layers::full)),
      sliding_row_(pattern_row(options.geometry, KvPattern::Layers::sliding)),
      full_token_(options.geometry.full_bytes_per_token()),
      sliding_token_(options.geometry.sliding_bytes_per_token()),
      block_(options.geometry.block_bytes()),
      window_(options.geometry.sliding_layers == 0 ? 0 : options.geometry.window) {}

LeaseTerms Workbench::terms(std::uint64_t holder) noexcept {
  return {.tier = Tier::host, .role = MemoryRole::kv_cache, .holder = HolderId{holder}};
}

Result<std::shared_ptr<host::PageBacking>, VirtualMemoryError> Workbench::make_backing(
    Bytes granule) {
  host::PageBackingOptions wanted;
  wanted.granule = granule;
  wanted.huge_pages = is_multiple(granule, host::huge_page_size());
  wanted.system_calls = calls_;
  MEMSTRATA_TRY(auto made, host::PageBacking::create(std::move(wanted)));
  auto backing = std::make_shared<host::PageBacking>(std::move(made));
  backings_.push_back(backing);
  return backing;
}

Bytes Workbench::note_leased() noexcept {
  const Bytes leased = governor_->usage(Tier::host).used;
  peak_leased_ = std::max(peak_leased_, leased);
  return leased;
}

void Workbench::observe(Bytes committed) {
  const Bytes leased = note_leased();
  if (leased != committed) {
    violation(fmt::format(
        "the engine counts {} committed bytes, the budget {}", committed.value, leased.value));
  }
  if (leased > *options_.limit) {
    violation(fmt::format(
        "{} bytes are leased, above the limit of {}", leased.value, options_.limit->value));
  }
  if (leased > last_sampled_ + Bytes{last_sampled_.value / 100}) {
    sample_kernel();
  }
}

void Workbench::sample_kernel() {
  const IdleTimer timer(*this);
  if (recorder_ != nullptr) {
    recorder_->pause(true);
  }
  const Bytes committed = note_leased();
  Bytes kernel;
  for (const auto& backing : backings_) {
    const auto figure = host::kernel_figure(*backing);
    if (!figure) {
      violation("the kernel's figure cannot be read: " + figure.error().message());
      continue;
    }
    kernel += figure->total();
  }
  if (recorder_ != nullptr) {
    recorder_->pause(false);
  }
  figures_.kernel_samples.push_back({.committed = committed, .kernel = kernel});
  peak_kernel_ = std::max(peak_kernel_, kernel);
  last_sampled_ = std::max(last_sampled_, committed);
  const Bytes off = distance(committed, kernel);
  if (off > sample_tolerance && off > Bytes{committed.value / 50}) {
    violation(fmt::format(
        "{} bytes are committed but the kernel shows {}", committed.value, kernel.value));
  }
}

void Workbench::end(Bytes left) {
  sample_kernel();
  for (const auto& backing : backings_) {
    if (const host::ParkedMemory parked = backing->parked(); parked.ranges != 0) {
      violation(fmt::format("the kernel did not take back {} address ranges of {} bytes",
                            parked.ranges,
                            parked.address_space.value));
    }
  }
  figures_.final_leased = note_leased();
  if (figures_.final_leased != left) {
    violation(fmt::format(
        "{} bytes are leased after everything was released, of which {} are accounted for",
        figures_.final_leased.value,
        left.value));
  }
}

void Workbench::check_end_of_lost_device(std::optional<std::string> failure) {
  if (failure) {
    violation(*std::move(failure));
  } else if (const Bytes left = note_leased(); left != Bytes{}) {
    violation(fmt::format("{} bytes are leased after the end of the lost device", left.value));
  }
}

void Workbench::violation(std::string text) {
  ++figures_.violations;
  if (figures_.violation_texts.size() < most_listed) {
    figures_.violation_texts.push_back(std::move(text));
  }
}

void Workbench::add_time(TimedOp op, std::chrono::nanoseconds time) {
  times_[std::to_underlying(op)].push_back(static_cast<std::uint64_t>(time.count()));
}

ExecutionFigures Workbench::figures() {
  const auto times = [this](TimedOp op) { return summary(times_[std::to_underlying(op)]); };
  figures_.op_ns = {.reserve = times(TimedOp::reserve),
                    .commit = times(TimedOp::commit),
                    .grow = times(TimedOp::grow),
                    .share = times(TimedOp::share),
                    .release = times(TimedOp::release)};
  figures_.peak_kernel = peak_kernel_;
  figures_.peak_leased = peak_leased_;
  figures_.verify.corrupted = corruption_.state == Corruption::State::seen;
  return figures_;
}

Result<void, ReplayError> Workbench::write_recording(std::chrono::nanoseconds worked) {
  if (recorder_ == nullptr) {
    return {};
  }
  return recorder_->write(options_.record_calls, {.wall = worked, .checksum = checksum_});
}

}  // namespace memstrata::replay_detail
