// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "frontend/replay/executor.hpp"
#include "frontend/replay/holding.hpp"
#include "frontend/replay/kv_memory.hpp"
#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_cause.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"

namespace memstrata::replay_detail {

/// Part of a sequence as the processor reads it.
struct KvPiece {
  ByteRange bytes;  ///< Of the full-attention part of the sequence.
  const std::byte* data;
};

/// What a store could not do: the typed error of the library.
struct KvStoreError {
  // NOLINTBEGIN(google-explicit-constructor): an error of the library is one of the store
  KvStoreError(VirtualBufferError error) noexcept : cause(ErrorCause::of(std::move(error))) {}

  KvStoreError(VirtualMemoryError error) noexcept
      : KvStoreError(VirtualBufferError(std::move(error))) {}

  KvStoreError(MemoryError error) noexcept : KvStoreError(VirtualBufferError(std::move(error))) {}

  KvStoreError(BindingError error) noexcept : cause(ErrorCause::of(std::move(error))) {}

  // NOLINTEND(google-explicit-constructor)

  ErrorCause cause;
};

/// The memory of one policy: keeps sequences and blocks, and writes their content. A failed call leaves what was
/// there before it or what destruction gives back. Single-threaded.
class KvStore {
 public:
  KvStore() = default;
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;
  KvStore(KvStore&&) = delete;
  KvStore& operator=(KvStore&&) = delete;
  virtual ~KvStore() = default;

  using Outcome = Result<void, KvStoreError>;

  /// Takes memory for a sequence, of whose blocks the first `hits` are there, and writes what is missing.
  [[nodiscard]] virtual Outcome admit(const Sequence& sequence, std::uint64_t hits) = 0;
  /// Takes room for `capacity` tokens and writes the last one of `sequence`.
  [[nodiscard]] virtual Outcome grow(const Sequence& sequence, std::uint64_t capacity) = 0;
  /// Asks for the release of what the sequence alone holds.
  [[nodiscard]] virtual Outcome drop(const Sequence& sequence) = 0;
  /// Asks for the release of a block that no sequence uses.
  [[nodiscard]] virtual Outcome evict(BlockIndex block) = 0;
  /// Asks for the release of everything.
  [[nodiscard]] virtual Outcome clear() = 0;

  /// Where the sequence's full-attention bytes lie, in order.
  [[nodiscard]] virtual std::vector<KvPiece> pieces(const Sequence& sequence) = 0;
  /// Reads and checks the sliding layers.
  virtual void check_sliding(const Sequence& sequence) = 0;
};

/// The first token that the sliding layers of a sequence still hold.
[[nodiscard]] inline std::uint64_t first_kept(std::uint64_t tokens, std::uint64_t window) noexcept {
  return tokens > window ? tokens - window : 0;
}

/// The store of a policy, whose memory is owned through `memory`. Errors: those of the backing and the binding.
[[nodiscard]] Result<std::unique_ptr<KvStore>, KvStoreError> make_store(ReplayPolicy policy,
                                                                        const ReplayInput& input,
                                                                        const Holding& holding,
                                                                        Workbench& bench,
                                                                        KvMemory& memory);

}  // namespace memstrata::replay_detail
