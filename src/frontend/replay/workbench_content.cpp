// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "frontend/replay/call_recorder.hpp"
#include "frontend/replay/kv_pattern.hpp"
#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"

namespace memstrata::replay_detail {
namespace {

/// A part of a sequence that has one owner. Its offset in the owner is `bytes.offset - start`.
struct OwnedPart {
  ByteRange bytes;
  std::optional<BlockIndex> block;
  Bytes start;
};

/// The first part of `bytes` that has one owner: prompt blocks own themselves, the request owns the rest.
OwnedPart first_owned(const Sequence& sequence, Bytes block, ByteRange bytes) noexcept {
  const std::uint64_t number =
      block == Bytes{} ? sequence.path.size() : bytes.offset.value / block.value;
  if (number >= sequence.path.size()) {
    return {.bytes = bytes, .block = std::nullopt, .start = {}};
  }
  const Bytes start = block * number;
  const Bytes end = std::min(bytes.end(), start + block);
  return {.bytes = {.offset = bytes.offset, .size = end - bytes.offset},
          .block = sequence.path[number],
          .start = start};
}

/// Calls `use(tokens that lie side by side, their place in the ring)` for tokens `[first, last)`.
template <class Use>
void for_each_ring_run(std::uint64_t first, std::uint64_t last, std::uint64_t window, Use&& use) {
  while (first < last) {
    const std::uint64_t place = first % window;
    const std::uint64_t count = std::min(last - first, window - place);
    use(first, count, place);
    first += count;
  }
}

}  // namespace

void Workbench::write_full(const Sequence& sequence, ByteRange bytes, std::byte* to) {
  while (!bytes.empty()) {
    const OwnedPart part = first_owned(sequence, block_, bytes);
    const KvOwner owner = part.block ? full_.block(input_.id(*part.block))
                                     : full_.request(sequence.request, sequence.incarnation);
    const ByteRange place{.offset = part.bytes.offset - part.start, .size = part.bytes.size};
    const std::uint64_t sum = full_.fill(owner, place, to);
    written(sequence,
            part.block,
            {.kind = RecordedStep::Kind::fill,
             .owner = owner.key,
             .row = full_row_,
             .offset = place.offset,
             .size = place.size},
            to,
            sum);
    to += part.bytes.size.value;
    bytes = {.offset = part.bytes.end(), .size = bytes.size - part.bytes.size};
  }
}

void Workbench::write_sliding(const Sequence& sequence,
                              std::uint64_t first,
                              std::uint64_t last,
                              std::byte* ring) {
  const KvOwner owner = sliding_.request(sequence.request, sequence.incarnation);
  for_each_ring_run(
      first, last, window_, [&](std::uint64_t token, std::uint64_t count, std::uint64_t place) {
        const ByteRange bytes{.offset = sliding_token_ * token, .size = sliding_token_ * count};
        std::byte* const to = ring + (sliding_token_ * place).value;
        const std::uint64_t sum = sliding_.fill(owner, bytes, to);
        written(sequence,
                std::nullopt,
                {.kind = RecordedStep::Kind::fill,
                 .owner = owner.key,
                 .row = sliding_row_,
                 .offset = bytes.offset,
                 .size = bytes.size},
                to,
                sum);
      });
}

// `--corrupt N`: the bit in the middle of the N-th write; of a later one if the first was lost unread.
void Workbench::written(const Sequence& sequence,
                        std::optional<BlockIndex> block,
                        const RecordedStep& step,
                        std::byte* to,
                        std::uint64_t checksum) {
  ++figures_.verify.writes;
  checksum_ += checksum;
  if (recorder_ != nullptr) {
    RecordedStep whole = step;
    whole.to = reinterpret_cast<std::uintptr_t>(to);
    recorder_->record(whole);
  }
  if (options_.corrupt_write && figures_.verify.writes >= *options_.corrupt_write &&
      corruption_.state == Corruption::State::waiting) {
    to[step.size.value / 2] ^= std::byte{1};
    corruption_ = {
        .state = Corruption::State::planted, .block = block, .request = sequence.request};
  }
}

void Workbench::copy(std::byte* to, const std::byte* from, Bytes size) {
  std::memcpy(to, from, size.value);
  if (recorder_ != nullptr) {
    recorder_->record({.kind = RecordedStep::Kind::copy,
                       .to = reinterpret_cast<std::uintptr_t>(to),
                       .from = reinterpret_cast<std::uintptr_t>(from),
                       .size = size});
  }
}

void Workbench::check_full(const Sequence& sequence, ByteRange bytes, const std::byte* from) {
  while (!bytes.empty()) {
    const OwnedPart part = first_owned(sequence, block_, bytes);
    const KvOwner owner = part.block ? full_.block(input_.id(*part.block))
                                     : full_.request(sequence.request, sequence.incarnation);
    const KvCheck check = full_.check(
        owner, {.offset = part.bytes.offset - part.start, .size = part.bytes.size}, from);
    figures_.verify.bytes_checked += part.bytes.size;
    found(sequence, part.block, check, part.start);
    from += part.bytes.size.value;
    bytes = {.offset = part.bytes.end(), .size = bytes.size - part.bytes.size};
  }
}

void Workbench::check_sliding(const Sequence& sequence,
                              std::uint64_t first,
                              std::uint64_t last,
                              const std::byte* ring) {
  const KvOwner owner = sliding_.request(sequence.request, sequence.incarnation);
  for_each_ring_run(
      first, last, window_, [&](std::uint64_t token, std::uint64_t count, std::uint64_t place) {
        const ByteRange bytes{.offset = sliding_token_ * token, .size = sliding_token_ * count};
        const KvCheck check = sliding_.check(owner, bytes, ring + (sliding_token_ * place).value);
        figures_.verify.bytes_checked += bytes.size;
        found(sequence, std::nullopt, check, Bytes{});
      });
}

void Workbench::found(const Sequence& sequence,
                      std::optional<BlockIndex> block,
                      const KvCheck& check,
                      Bytes owner_to_sequence) {
  if (check.mismatches == 0) {
    return;
  }
  ReplayVerify& verify = figures_.verify;
  verify.mismatches += check.mismatches;
  if (verify.first.size() < most_listed) {
    verify.first.push_back({.request = sequence.request,
                            .incarnation = sequence.incarnation,
                            .block = block ? std::optional(input_.id(*block)) : std::nullopt,
                            .offset = check.first.offset,
                            .sequence_offset = check.first.offset + owner_to_sequence,
                            .expected = check.first.expected,
                            .found = check.first.found});
  }
  if (corruption_.state == Corruption::State::planted) {
    corruption_.state = Corruption::State::seen;
  }
}

void Workbench::lost_request(std::uint64_t request, bool blocks_stay) noexcept {
  const bool stays = blocks_stay && corruption_.block.has_value();
  if (corruption_.state == Corruption::State::planted && corruption_.request == request && !stays) {
    corruption_.state = Corruption::State::waiting;
  }
}

void Workbench::lost_block(BlockIndex block) noexcept {
  if (corruption_.state == Corruption::State::planted && corruption_.block == block) {
    corruption_.state = Corruption::State::waiting;
  }
}

}  // namespace memstrata::replay_detail
