// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/kv_mechanism.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/replay/holding.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/frontend/replay/release_injection.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/structure/physical_charge.hpp"
#include "memstrata/structure/virtual_buffer.hpp"

namespace memstrata::replay_detail {
namespace {

/// No processor has addresses with only the highest bit: those of a program lie below, those of a kernel far above.
constexpr std::uint64_t block_addresses = std::uint64_t{1} << 63U;

bool can_be_halved(Bytes held, Bytes unit) noexcept {
  return held >= unit * 2;
}

/// Gives back private granules from the end until half of them is left.
void halve(VirtualBuffer<host::PageBacking>& buffer) {
  const Bytes left = Bytes{buffer.committed().value / 2};
  const Bytes granule = buffer.granularity();
  while (buffer.committed() > left && !buffer.empty()) {
    const Bytes end = align_up(buffer.length(), granule).value_or(buffer.length());
    if (!buffer.shrink_to(saturating_sub(end, granule))) {
      return;
    }
  }
}

void halve(KvPool& pool) {
  const Bytes left = Bytes{pool.committed().value / 2};
  for (Bytes end = pool.size(); pool.committed() > left; end -= pool.granularity()) {
    const ByteRange page{.offset = end - pool.granularity(), .size = pool.granularity()};
    if (!pool.decommit(page)) {
      return;
    }
  }
}

template <class Memory>
MechanismRelease stop_midway(Memory& memory) {
  const Bytes before = memory.committed();
  halve(memory);
  return MechanismRelease::partial(
      before - memory.committed(), memory.committed(), "injected: the release stopped midway");
}

bool has_grown(const host::ParkedMemory& before, const host::ParkedMemory& after) noexcept {
  return after.ranges > before.ranges || after.prefix_bytes > before.prefix_bytes;
}

}  // namespace

KvMechanism::KvMechanism(Workbench& bench, std::vector<ReleaseInjection> injections)
    : bench_(bench), injections_(std::move(injections)) {}

// --- What is there ---------------------------------------------------------------------------------------

AllocationSpan KvMechanism::span_of(const KvSequence& memory) const noexcept {
  return {.address = memory.buffer.base(),
          .bytes = memory.buffer.capacity(),
          .alignment = machine_page};
}

AllocationSpan KvMechanism::span_of(const KvPool& memory) const noexcept {
  return {.address = memory.base(), .bytes = memory.size(), .alignment = machine_page};
}

AllocationSpan KvMechanism::span_of(const KvBlock& memory) noexcept {
  const Bytes number = machine_page * next_block_++;
  return {.address = DeviceAddress(block_addresses | number.value),
          .bytes = memory.prefix.size(),
          .alignment = machine_page};
}

Bytes KvMechanism::own_charge(const Entry& entry) noexcept {
  if (const auto* sequence = std::get_if<KvSequence>(&entry.memory)) {
    return sequence->buffer.leased();
  }
  if (const auto* block = std::get_if<KvBlock>(&entry.memory)) {
    return block->charge->lease.bytes();
  }
  if (const auto* pool = std::get_if<KvPool>(&entry.memory)) {
    return pool->leased();
  }
  const auto* refused = std::get_if<Refused>(&entry.memory);
  return refused != nullptr ? refused->lease.bytes() : Bytes{};
}

const BlockCharges* KvMechanism::blocks_mapped_by(const Entry& entry) noexcept {
  if (const auto* sequence = std::get_if<KvSequence>(&entry.memory)) {
    return &sequence->mapped;
  }
  const auto* refused = std::get_if<Refused>(&entry.memory);
  return refused != nullptr ? &refused->mapped : nullptr;
}

// A block that several map is charged once: the first pass counts it, the second makes ready for the next sum.
Bytes KvMechanism::sum_of_charges(bool only_kept_back) const noexcept {
  Bytes sum;
  for (const bool is_counting : {true, false}) {
    for (const auto& [address, entry] : entries_) {
      if (only_kept_back && !entry.is_kept_back) {
        continue;
      }
      if (is_counting) {
        sum += own_charge(entry);
      }
      const BlockCharges* const mapped = blocks_mapped_by(entry);
      if (mapped == nullptr) {
        continue;
      }
      for (const auto& charge : *mapped) {
        if (is_counting && charge->is_given_up && !charge->is_counted) {
          sum += charge->lease.bytes();
        }
        charge->is_counted = is_counting;
      }
    }
  }
  return sum;
}

Bytes KvMechanism::withheld() const noexcept {
  const MutexLock lock(mutex_);
  return withheld_;
}

Bytes KvMechanism::charged() const noexcept {
  const MutexLock lock(mutex_);
  return sum_of_charges(false);
}

std::uint64_t KvMechanism::injected() const noexcept {
  const MutexLock lock(mutex_);
  return injected_;
}

KvLeftover KvMechanism::leftover(DeviceAddress address) const noexcept {
  const MutexLock lock(mutex_);
  const Entry& entry = entries_.find(address.value())->second;
  Bytes charged = own_charge(entry);
  if (const BlockCharges* const mapped = blocks_mapped_by(entry)) {
    for (const auto& charge : *mapped) {
      charged += charge->is_given_up ? charge->lease.bytes() : Bytes{};
    }
  }
  return {.release = entry.release,
          .kind = entry.origin.kind,
          .request = entry.origin.request,
          .charged = charged};
}

void KvMechanism::number_release(DeviceAddress address, std::uint64_t release) noexcept {
  const MutexLock lock(mutex_);
  entries_.find(address.value())->second.release = release;
}

// --- Release ---------------------------------------------------------------------------------------------

Result<DeviceAddress> KvMechanism::allocate(Bytes bytes, Bytes /*alignment*/) {
  return fail(MemoryError(
      InvalidRequest{.tier = Tier::host,
                     .requested = bytes,
                     .reason = "the policies of a replay make their memory, which is adopted"}));
}

MechanismRelease KvMechanism::release(const AllocationSpan& allocation) {
  const OpTimer timer(bench_, TimedOp::release);
  Table::node_type node;
  {
    const MutexLock lock(mutex_);
    node = entries_.extract(allocation.address.value());
  }
  if (node.empty()) {
    return MechanismRelease::unchanged("there is no such allocation");
  }
  MechanismRelease answer = release_entry(node.mapped());
  const MutexLock lock(mutex_);
  if (!answer.is_complete()) {
    node.mapped().is_kept_back = true;
    ++kept_back_;
    refused_ += std::holds_alternative<Refused>(node.mapped().memory) ? 1U : 0U;
    entries_.insert(std::move(node));  // no more entries than before: no allocation
  }
  if (kept_back_ != 0) {
    withheld_ = sum_of_charges(true);
  }
  return answer;
}

MechanismRelease KvMechanism::release_entry(Entry& entry) {
  if (takes_fault(ReleaseFault::fail, entry)) {
    return MechanismRelease::unchanged("injected: the release fails");
  }
  if (takes_fault(ReleaseFault::midway, entry)) {
    auto* const sequence = std::get_if<KvSequence>(&entry.memory);
    return sequence != nullptr ? stop_midway(sequence->buffer)
                               : stop_midway(std::get<KvPool>(entry.memory));
  }
  return give_back(entry);
}

bool KvMechanism::takes_fault(ReleaseFault fault, const Entry& entry) {
  bool is_fit = true;
  if (fault == ReleaseFault::midway) {
    const auto* const sequence = std::get_if<KvSequence>(&entry.memory);
    const auto* const pool = std::get_if<KvPool>(&entry.memory);
    is_fit = (sequence != nullptr &&
              can_be_halved(sequence->buffer.committed(), sequence->buffer.granularity())) ||
             (pool != nullptr && can_be_halved(pool->committed(), pool->granularity()));
  }
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find_if(injections_, [&](const ReleaseInjection& injection) {
    return injection.fault == fault &&
           (fault == ReleaseFault::midway ? injection.release <= entry.release
                                          : injection.release == entry.release);
  });
  if (!is_fit || found == injections_.end()) {
    return false;
  }
  injections_.erase(found);
  ++injected_;
  return true;
}

// The kernel's refusal shows only afterwards, in the books of the backing, which goes on trying. Until it succeeds
// the bytes are there, and so is their charge.
MechanismRelease KvMechanism::give_back(Entry& entry) {
  const Bytes charged = own_charge(entry);
  Bytes unmapped = charged;
  BlockCharges mapped;
  if (auto* const sequence = std::get_if<KvSequence>(&entry.memory)) {
    mapped = std::move(sequence->mapped);
  } else if (auto* const block = std::get_if<KvBlock>(&entry.memory)) {
    block->charge->is_given_up = true;
    unmapped = block->charge.use_count() == 1 ? charged : Bytes{};
  }
  const host::ParkedMemory before = entry.origin.backing->parked();
  entry.memory.emplace<std::monostate>();
  if (!has_grown(before, entry.origin.backing->parked())) {
    return MechanismRelease::complete(unmapped);
  }
  const LeaseTerms terms = Workbench::terms(entry.origin.request);
  if (auto lease =
          bench_.governor()->record_committed(terms.tier, charged, terms.role, terms.holder)) {
    entry.memory.emplace<Refused>(std::move(mapped), *std::move(lease));
  }
  return MechanismRelease::partial({}, charged, "the kernel did not take the memory back");
}

void KvMechanism::keep_back(DeviceAddress address) noexcept {
  const MutexLock lock(mutex_);
  entries_.find(address.value())->second.is_kept_back = true;
  ++kept_back_;
  withheld_ = sum_of_charges(true);
}

std::vector<DeviceAddress> KvMechanism::retry_refused() {
  const MutexLock lock(mutex_);
  std::vector<DeviceAddress> gone;
  if (refused_ == 0) {
    return gone;
  }
  for (auto at = entries_.begin(); at != entries_.end();) {
    const bool is_refused = std::holds_alternative<Refused>(at->second.memory);
    if (is_refused) {
      const host::ParkedMemory left = at->second.origin.backing->retry_parked();
      if (left.ranges == 0 && left.prefix_bytes == Bytes{}) {
        gone.emplace_back(at->first);
        at = entries_.erase(at);
        --kept_back_;
        --refused_;
        continue;
      }
    }
    ++at;
  }
  withheld_ = sum_of_charges(true);
  return gone;
}

void KvMechanism::forget(DeviceAddress address) noexcept {
  const MutexLock lock(mutex_);
  entries_.erase(address.value());
}

void KvMechanism::forget_all() noexcept {
  const MutexLock lock(mutex_);
  entries_.clear();
  kept_back_ = 0;
  refused_ = 0;
  withheld_ = {};
}

}  // namespace memstrata::replay_detail
