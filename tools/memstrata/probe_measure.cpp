// SPDX-License-Identifier: Apache-2.0
#include "probe_measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ratio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::tool {
namespace {

using host::PageBacking;

constexpr std::size_t rounds = 21;
constexpr std::size_t warm_up_rounds = 4;
constexpr std::size_t bandwidth_rounds = 5;

/// Runs `work` once and says how long it took.
template <class Work>
double time_ns(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

/// One measurement per round; the first rounds only warm the memory up (fresh pages of a virtual machine cost
/// many times what they cost the second time).
class Samples {
 public:
  template <class T, class Work>
  [[nodiscard]] Result<T, VirtualMemoryError> add(const Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    auto result = work();
    const auto end = std::chrono::steady_clock::now();
    values_.push_back(std::chrono::duration<double, std::nano>(end - begin).count());
    return result;
  }

  void add_plain(double nanoseconds) { values_.push_back(nanoseconds); }

  [[nodiscard]] Spread spread() const {
    const auto measured = std::span(values_).subspan(std::min(warm_up_rounds, values_.size()));
    std::vector<double> kept(measured.begin(), measured.end());
    if (kept.empty()) {
      return {};
    }
    std::ranges::sort(kept);
    const auto at = [&kept](std::size_t quarter) { return kept[(kept.size() - 1) * quarter / 4]; };
    return {.p25_ns = at(1), .p50_ns = at(2), .p75_ns = at(3)};
  }

 private:
  std::vector<double> values_;
};

struct CaseSamples {
  Samples reserve;
  Samples commit;
  Samples fault;
  Samples commit_populated;
  Samples release;
  Samples map_shared;
};

void touch_every_page(std::byte* base, Bytes size) {
  const std::uint64_t page = host::page_size().value;
  for (std::uint64_t at = 0; at < size.value; at += page) {
    *static_cast<volatile std::byte*>(base + at) = std::byte{1};
  }
}

/// One round on a backing that does not populate: reserve, commit, touch.
Result<void, VirtualMemoryError> lazy_round(PageBacking& backing,
                                            Bytes piece,
                                            CaseSamples& samples) {
  MEMSTRATA_TRY(auto reservation, samples.reserve.add<PageBacking::Reservation>([&backing] {
    return backing.reserve(64_GiB);
  }));
  const ByteRange range{.offset = Bytes{}, .size = piece};
  MEMSTRATA_TRY_VOID(samples.commit.add<void>([&] { return backing.commit(reservation, range); }));
  samples.fault.add_plain(time_ns([&] { touch_every_page(reservation.data(), piece); }));
  return {};
}

/// One round on a backing that populates: commit, release, and a prefix of the same size mapped.
Result<void, VirtualMemoryError> populated_round(PageBacking& backing,
                                                 Bytes piece,
                                                 CaseSamples& samples) {
  MEMSTRATA_TRY(auto reservation, backing.reserve(piece));
  const ByteRange range{.offset = Bytes{}, .size = piece};
  MEMSTRATA_TRY_VOID(
      samples.commit_populated.add<void>([&] { return backing.commit(reservation, range); }));
  MEMSTRATA_TRY_VOID(
      samples.release.add<void>([&] { return backing.decommit(reservation, range); }));
  MEMSTRATA_TRY(auto builder, backing.create_prefix(piece));
  touch_every_page(builder.data(), piece);
  MEMSTRATA_TRY(const auto prefix, builder.seal());
  return samples.map_shared.add<void>(
      [&] { return backing.map_shared(reservation, Bytes{}, prefix, range); });
}

Result<void, VirtualMemoryError> measure_rounds(const BackingCosts& costs, CaseSamples& samples) {
  host::PageBackingOptions options;
  options.granule = costs.granule;
  options.huge_pages = costs.huge_pages;
  MEMSTRATA_TRY(auto populating, PageBacking::create(options));
  options.populate = false;
  MEMSTRATA_TRY(auto lazy, PageBacking::create(options));
  for (std::size_t round = 0; round < warm_up_rounds + rounds; ++round) {
    MEMSTRATA_TRY_VOID(lazy_round(lazy, costs.piece, samples));
    MEMSTRATA_TRY_VOID(populated_round(populating, costs.piece, samples));
  }
  return {};
}

void measure(BackingCosts& costs) {
  CaseSamples samples;
  if (const auto measured = measure_rounds(costs, samples); !measured) {
    costs.failure = measured.error().message();
    return;
  }
  costs.reserve = samples.reserve.spread();
  costs.commit = samples.commit.spread();
  costs.fault = samples.fault.spread();
  costs.commit_populated = samples.commit_populated.spread();
  costs.release = samples.release.spread();
  costs.map_shared = samples.map_shared.spread();
}

double median_rate(std::vector<double> nanoseconds, Bytes bytes) {
  std::ranges::sort(nanoseconds);
  return static_cast<double>(bytes.value) * 1e9 / nanoseconds[nanoseconds.size() / 2];
}

/// Reads every word.
std::uint64_t sum_words(std::span<const std::uint64_t> words) {
  std::uint64_t sum = 0;
  for (const std::uint64_t word : words) {
    sum += word;
  }
  return sum;
}

}  // namespace

Bandwidth measure_bandwidth(Bytes room) {
  const Bytes size = align_down(std::min(256_MiB, Bytes{room.value / 8}), 64_KiB);
  Bandwidth bandwidth{.buffer = size};
  if (size == Bytes{}) {
    return bandwidth;
  }
  const std::size_t words = size.value / sizeof(std::uint64_t);
  std::vector<std::uint64_t> source(words, 1);
  std::vector<std::uint64_t> target(words, 2);
  std::vector<double> fill;
  std::vector<double> read;
  std::vector<double> copy;
  volatile std::uint64_t kept = 0;
  for (std::size_t round = 0; round < bandwidth_rounds; ++round) {
    const int pattern = static_cast<int>(round) + 1;
    fill.push_back(time_ns([&] { std::memset(source.data(), pattern, size.value); }));
    read.push_back(time_ns([&] { kept = sum_words(source); }));
    copy.push_back(time_ns([&] { std::memcpy(target.data(), source.data(), size.value); }));
    kept = target[round];
  }
  bandwidth.fill = median_rate(std::move(fill), size);
  bandwidth.read = median_rate(std::move(read), size);
  bandwidth.copy = median_rate(std::move(copy), size);
  return bandwidth;
}

std::vector<BackingCosts> measure_backings() {
  const Bytes huge = host::huge_page_size();
  std::vector<BackingCosts> all;
  all.push_back({.name = "host, 64 KiB granules", .granule = 64_KiB, .piece = 64_KiB});
  all.push_back(
      {.name = "host, 64 KiB granules, 2 MiB at once", .granule = 64_KiB, .piece = 2_MiB});
  all.push_back({.name = "host, huge pages", .granule = huge, .huge_pages = true, .piece = huge});
  for (BackingCosts& costs : all) {
    measure(costs);
  }
  return all;
}

}  // namespace memstrata::tool
