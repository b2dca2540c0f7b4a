// SPDX-License-Identifier: Apache-2.0
// What bindings and their registry do when there is no memory for the books.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/provider_context_pin_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/log.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/bound_capability.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "support/binding_rig.hpp"
#include "support/capability_rig.hpp"
#include "support/recorder.hpp"

namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

/// So many more blocks can be had on this thread.
thread_local std::size_t blocks_left = no_limit;

}  // namespace

// Not inlined, so that the compiler sees pairs of new and delete and not what is in them.
// NOLINTBEGIN(cppcoreguidelines-no-malloc): the allocation function itself
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (blocks_left != no_limit && blocks_left-- == 0) {
    blocks_left = 0;
    throw std::bad_alloc();
  }
  void* const block = std::malloc(size);
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  return block;
}

[[gnu::noinline]] void operator delete(void* block) noexcept {
  std::free(block);
}

[[gnu::noinline]] void operator delete(void* block, std::size_t /*size*/) noexcept {
  std::free(block);
}

// NOLINTEND(cppcoreguidelines-no-malloc)

namespace memstrata::binding_memory_test {
namespace {

using test::BindingRig;
using test::CapabilityRig;
using test::expect_quiescent;
using test::must;
using test::must_do;
using test::Recorder;

/// What `call` gives while only `blocks` more blocks can be had.
template <class Call>
auto with_blocks(std::size_t blocks, Call call) {
  blocks_left = blocks;
  auto result = call();
  blocks_left = no_limit;
  return result;
}

void expect_no_memory(const BindingError& refused, Bytes requested) {
  const auto* error = refused.as<MemoryError>();
  ASSERT_NE(error, nullptr) << refused.message();
  const auto* failed = std::get_if<AllocationFailed>(&error->kind);
  ASSERT_NE(failed, nullptr) << refused.message();
  EXPECT_EQ(failed->tier, Tier::host);
  EXPECT_EQ(failed->requested, requested);
}

TEST(BindingWithoutMemory, RefusesAnAllocationBeforeTheAllocatorIsCalled) {
  const BindingRig rig;

  const auto refused = with_blocks(0, [&] { return rig.binding.allocate(4096_B, 64_B); });

  ASSERT_FALSE(refused.has_value());
  expect_no_memory(refused.error(), 4096_B);
  EXPECT_EQ(rig.allocator->calls("allocate"), 0U);
  expect_quiescent(rig.snapshot());
  OwningAllocation later = rig.allocate();
  must_do(later.release_now());
}

TEST(BindingWithoutMemory, LeavesWhatCannotBeAdoptedWithTheCaller) {
  const BindingRig rig;
  const AllocationSpan made{
      .address = rig.allocator->make(512_B, 64_B), .bytes = 512_B, .alignment = 64_B};

  const auto refused =
      with_blocks(0, [&] { return rig.binding.adopt_allocation(made, attest_sole_owner); });

  ASSERT_FALSE(refused.has_value());
  expect_no_memory(refused.error(), 512_B);
  EXPECT_TRUE(rig.allocator->is_live(made.address));
  expect_quiescent(rig.snapshot());
}

TEST(BindingWithoutMemory, RefusesABatchBeforeTheMechanismIsCalled) {
  const CapabilityRig rig;
  OwningAllocation owner = rig.allocate();
  const BoundCommitRange one{.allocation = &owner, .range = {.offset = 0_B, .size = 8_B}};
  for (std::size_t blocks = 0; blocks < 2; ++blocks) {  // the pins, and what the mechanism is given
    const std::uint64_t calls = rig.allocator->virtual_calls();

    const auto refused = with_blocks(blocks, [&] { return rig.backing.commit_all({&one, 1}); });

    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().committed_ranges, 0U);
    expect_no_memory(refused.error().error, 0_B);
    EXPECT_EQ(rig.allocator->virtual_calls(), calls);
    EXPECT_EQ(owner.outstanding_views(), 0U);
    EXPECT_EQ(rig.snapshot().active_operations, 0U);
  }
  must_do(owner.release_now());
}

/// What the log was told; a sink is a plain function, and this one needs no memory.
std::size_t errors_told = 0;

TEST(BindingWithoutMemory, StillSaysThatAMechanismEndedWhileItOwnedMemory) {
  const LogSink before = set_log_sink([](LogLevel level, std::string_view text) noexcept {
    const bool is_it = text.find("ended while it owned") != std::string_view::npos;
    errors_told += level == LogLevel::error && is_it ? 1U : 0U;
  });
  std::optional<MemoryBinding> last;
  {
    const BindingRegistry registry = must(BindingRegistry::create());
    const DeviceKey host = DeviceKey::host();
    const auto context = must(registry.register_provider_context(host, nullptr));
    const auto authority = must(registry.register_authority(host, nullptr));
    last = must(registry.bind(
        must(registry.register_allocator(context, authority, std::make_shared<Recorder>(host)))));
    static_cast<void>(must(last->allocate(4096_B, 64_B)));
  }
  ASSERT_EQ(errors_told, 0U);

  blocks_left = 0;
  last.reset();
  blocks_left = no_limit;
  set_log_sink(before);

  EXPECT_EQ(errors_told, 1U);
}

/// Calls `call` with one more block each time until there are enough, and gives its result then; `after` gets the
/// error whenever there were not.
template <class Call, class After>
auto with_every_number_of_blocks(Call call, After after) {
  for (std::size_t blocks = 0;; ++blocks) {
    blocks_left = blocks;
    auto result = call();
    blocks_left = no_limit;
    if (result) {
      EXPECT_GT(blocks, 0U);
      return *std::move(result);
    }
    after(result.error());
  }
}

void expect_allocation_failed(const BindingError& error) {
  const auto* memory = std::get_if<MemoryError>(&error.kind);
  ASSERT_NE(memory, nullptr);
  EXPECT_NE(std::get_if<AllocationFailed>(&memory->kind), nullptr);
}

TEST(RegistryWithoutMemory, RegistersNothingAndKeepsNothing) {
  const BindingRegistry registry = must(BindingRegistry::create());
  const DeviceKey host = DeviceKey::host();
  const auto resource = std::make_shared<int>(1);
  const auto allocator = std::make_shared<Recorder>(host);

  const auto context = with_every_number_of_blocks(
      [&] { return registry.register_provider_context(host, resource); },
      [&](const BindingError& error) {
        expect_allocation_failed(error);
        EXPECT_EQ(resource.use_count(), 1);
      });
  const auto authority =
      with_every_number_of_blocks([&] { return registry.register_authority(host, resource); },
                                  [&](const BindingError& error) {
                                    expect_allocation_failed(error);
                                    EXPECT_EQ(resource.use_count(), 2);
                                  });
  static_cast<void>(with_every_number_of_blocks(
      [&] { return registry.register_allocator(context, authority, allocator); },
      [&](const BindingError& error) {
        expect_allocation_failed(error);
        EXPECT_EQ(allocator.use_count(), 1);
        EXPECT_TRUE(registry.snapshots().empty());
        EXPECT_FALSE(registry.bind(host).has_value());
      }));

  EXPECT_EQ(registry.snapshots().size(), 1U);
  EXPECT_TRUE(registry.bind(host).has_value());
}

//
TEST(ContextPinWithoutMemory, IsNotCounted) {
  const BindingRegistry registry = must(BindingRegistry::create());
  const auto context = must(registry.register_provider_context(DeviceKey::host(), nullptr));
  const auto source = with_every_number_of_blocks([&] { return registry.pin_source(context); },
                                                  expect_allocation_failed);

  auto pin = with_every_number_of_blocks(
      [&] { return source->pin(); },
      [&](const ProviderContextPinError& error) {
        EXPECT_NE(std::get_if<PinAllocationFailed>(&error.kind), nullptr);
        EXPECT_EQ(error.context(), context.identity);
        EXPECT_EQ(must(registry.provider_context(context)).pins, 0U);
      });
  EXPECT_EQ(pin->context(), context.identity);
  pin.reset();

  must_do(registry.remove_provider_context(context));
}

}  // namespace
}  // namespace memstrata::binding_memory_test
