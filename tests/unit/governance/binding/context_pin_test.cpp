// SPDX-License-Identifier: Apache-2.0
#include "memstrata/contract/context_pin.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/provider_context_pin_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "support/binding_rig.hpp"

namespace memstrata {
namespace {

using test::BindingRig;
using test::DropLog;
using test::must;
using test::must_do;
using test::Probe;
using Pin = std::unique_ptr<ProviderContextPin>;

/// A context that no mechanism uses.
struct PinRig {
  explicit PinRig(BindingRegistryOptions options = {})
      : registry(must(BindingRegistry::create(options))) {}

  [[nodiscard]] Pin pin() const { return must(source->pin()); }

  [[nodiscard]] std::uint64_t pins() const { return must(registry.provider_context(context)).pins; }

  void expect_unavailable(ProviderContextLifecycle lifecycle) const {
    const auto refused = source->pin();

    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().context(), context.identity);
    const auto* error = std::get_if<ContextUnavailable>(&refused.error().kind);
    ASSERT_NE(error, nullptr) << refused.error().message();
    EXPECT_EQ(error->context, context.identity);
    EXPECT_EQ(error->lifecycle, lifecycle);
  }

  BindingRegistry registry;
  std::shared_ptr<DropLog> drops = std::make_shared<DropLog>();
  RegisteredProviderContext context =
      must(registry.register_provider_context(DeviceKey::device(1),
                                              std::make_shared<Probe>(drops, "context")));
  std::shared_ptr<ProviderContextPinSource> source = must(registry.pin_source(context));
};

//
TEST(ContextPin, NamesItsContextAndIsCounted) {
  const PinRig rig;

  const Pin first = rig.pin();
  const Pin second = rig.pin();

  EXPECT_EQ(rig.source->context(), rig.context.identity);
  EXPECT_EQ(first->context(), rig.context.identity);
  EXPECT_EQ(rig.pins(), 2U);
}

//
TEST(ContextPin, BlocksRemovalUntilItIsDestroyed) {
  const PinRig rig;
  Pin pin = rig.pin();

  const auto refused = rig.registry.remove_provider_context(rig.context);

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<ProviderContextInUse>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->context, rig.context.identity);
  EXPECT_EQ(error->mechanisms, 0U);
  EXPECT_EQ(error->pins, 1U);
  pin.reset();
  EXPECT_EQ(rig.pins(), 0U);
  EXPECT_TRUE(rig.registry.remove_provider_context(rig.context).has_value());
}

//
TEST(ContextPin, ARefusedRemovalLeavesTheContextOpenForPins) {
  const PinRig rig;
  const Pin pin = rig.pin();
  ASSERT_FALSE(rig.registry.remove_provider_context(rig.context).has_value());

  EXPECT_TRUE(rig.source->pin().has_value());
}

//
TEST(ContextPin, BlocksTheConfirmationOfALostContextUntilItIsDestroyed) {
  const PinRig rig;
  Pin first = rig.pin();
  Pin second = rig.pin();
  rig.registry.invalidate_device(rig.context.device, "fell off the bus");

  const auto refused = rig.registry.confirm_context_terminated(rig.context);

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<ContextNotQuiescent>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->context, rig.context.identity);
  EXPECT_EQ(error->active_operations, 2U);
  first.reset();
  EXPECT_FALSE(rig.registry.confirm_context_terminated(rig.context).has_value());
  second.reset();
  EXPECT_TRUE(rig.registry.confirm_context_terminated(rig.context).has_value());
}

//
TEST(ContextPin, OfAContextWithMechanismsCountsBesideTheirOperations) {
  const BindingRig rig;
  const auto source = must(rig.registry.pin_source(rig.context));
  OwningAllocation owner = rig.allocate();
  PreparedAllocationRelease queued = must(owner.prepare_release());
  const Pin pin = must(source->pin());
  rig.registry.invalidate_device(rig.device, "fell off the bus");

  const auto refused = rig.registry.confirm_context_terminated(rig.context);

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<ContextNotQuiescent>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->active_operations, 2U);
  EXPECT_EQ(rig.snapshot().lifecycle, MechanismLifecycle::device_lost);
  static_cast<void>(queued.execute());
}

//
TEST(ContextPin, ARetiringContextTakesNoMore) {
  const PinRig rig;
  const Pin held = rig.pin();

  must_do(rig.registry.retire_provider_context(rig.context));

  rig.expect_unavailable(ProviderContextLifecycle::retiring);
  EXPECT_EQ(rig.pins(), 1U);
}

//
TEST(ContextPin, ALostContextTakesNoMore) {
  const PinRig rig;

  rig.registry.invalidate_device(rig.context.device, "fell off the bus");

  rig.expect_unavailable(ProviderContextLifecycle::device_lost);
}

//
TEST(ContextPin, ATerminatedContextTakesNoMore) {
  const PinRig rig;
  rig.registry.invalidate_device(rig.context.device, "fell off the bus");

  must_do(rig.registry.confirm_context_terminated(rig.context));

  rig.expect_unavailable(ProviderContextLifecycle::terminated);
}

//
TEST(ContextPin, ARemovedContextTakesNoMore) {
  const PinRig rig;

  must_do(rig.registry.remove_provider_context(rig.context));

  rig.expect_unavailable(ProviderContextLifecycle::retiring);
}

//
TEST(ContextPin, AtTheMaximumOneMoreIsRefusedAndNothingWraps) {
  const PinRig rig({.most_pins = 3});
  std::vector<Pin> pins;
  for (int i = 0; i < 3; ++i) {
    pins.push_back(rig.pin());
  }

  const auto refused = rig.source->pin();

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().context(), rig.context.identity);
  const auto* error = std::get_if<PinCountOverflow>(&refused.error().kind);
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->context, rig.context.identity);
  EXPECT_EQ(rig.pins(), 3U);
  pins.pop_back();
  EXPECT_TRUE(rig.source->pin().has_value());
}

//
TEST(ContextPin, ASourceAndItsPinsOutliveTheRegistryAndKeepTheResource) {
  auto rig = std::make_unique<PinRig>();
  const auto drops = rig->drops;
  std::shared_ptr<ProviderContextPinSource> source = rig->source;
  Pin pin = rig->pin();
  const ProviderContextIdentity identity = rig->context.identity;

  rig.reset();

  EXPECT_TRUE(drops->names().empty());
  EXPECT_TRUE(source->pin().has_value());
  source.reset();
  EXPECT_EQ(pin->context(), identity);
  EXPECT_TRUE(drops->names().empty());
  pin.reset();
  EXPECT_EQ(drops->names().size(), 1U);
}

}  // namespace
}  // namespace memstrata
