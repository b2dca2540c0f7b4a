// SPDX-License-Identifier: Apache-2.0
// Random sequences of everything that a registry and its bindings can do, beside books that are plain lists.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "binding_model.hpp"
#include "memstrata/contract/context_pin.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "support/binding_rig.hpp"
#include "support/recorder.hpp"
#include "support/release_queues.hpp"

namespace memstrata {
namespace {

using test::BindingModel;
using test::must;
using test::Recorder;
using test::refused;
using test::ReleaseAnswer;
using test::Verdict;
using Kind = QuarantineReason::Kind;
using State = AllocationReleaseState;

constexpr Bytes alignment{64};

template <class T>
Verdict verdict_of(const Result<T, BindingError>& result) {
  return result ? std::nullopt : Verdict(result.error().kind.index());
}

/// What refers to one allocation, beside its number in the model.
template <class T>
struct Numbered {
  std::size_t number;
  T value;
};

class BindingWalk {
 public:
  explicit BindingWalk(std::uint64_t seed) : random_(seed) {}

  void step() {
    static constexpr std::array all{&BindingWalk::register_ground,
                                    &BindingWalk::register_mechanism,
                                    &BindingWalk::change_mechanism,
                                    &BindingWalk::change_context,
                                    &BindingWalk::lose_or_end,
                                    &BindingWalk::bind,
                                    &BindingWalk::bind,
                                    &BindingWalk::allocate,
                                    &BindingWalk::allocate,
                                    &BindingWalk::allocate,
                                    &BindingWalk::allocate,
                                    &BindingWalk::adopt,
                                    &BindingWalk::make_view,
                                    &BindingWalk::make_view,
                                    &BindingWalk::change_view,
                                    &BindingWalk::change_view,
                                    &BindingWalk::use_view,
                                    &BindingWalk::use_view,
                                    &BindingWalk::prepare,
                                    &BindingWalk::prepare,
                                    &BindingWalk::release,
                                    &BindingWalk::reject,
                                    &BindingWalk::drop_owner,
                                    &BindingWalk::settle,
                                    &BindingWalk::settle,
                                    &BindingWalk::settle,
                                    &BindingWalk::reclaim,
                                    &BindingWalk::reclaim,
                                    &BindingWalk::reconcile,
                                    &BindingWalk::pin};
    (this->*all.at(pick(all.size())))();
  }

  void check() const {
    ASSERT_EQ(registry_.snapshots().size(), registered());
    for (std::size_t i = 0; i < mechanisms_.size(); ++i) {
      check_mechanism(i);
    }
    for (std::size_t i = 0; i < contexts_.size(); ++i) {
      const auto now = registry_.provider_context(contexts_.at(i));
      const BindingModel::Context& expected = model_.contexts.at(i);
      ASSERT_EQ(now.has_value(), expected.registered);
      if (now) {
        ASSERT_EQ(now->lifecycle, expected.lifecycle);
        ASSERT_EQ(now->pins, expected.pins);
        ASSERT_EQ(now->mechanisms, model_.users_of_context(i));
      }
    }
    for (const auto& owner : owners_) {
      ASSERT_EQ(owner.value.identity(), identities_.at(owner.number));
      ASSERT_EQ(owner.value.outstanding_views(), model_.allocations.at(owner.number).views);
      ASSERT_EQ(owner.value.state(), State::live);
    }
    for (const auto& view : views_) {
      ASSERT_EQ(view.value.identity(), identities_.at(view.number));
    }
  }

 private:
  // What a walk has at once, so that the lists stay short and the sequences deep.
  static constexpr std::size_t most_contexts = 12;
  static constexpr std::size_t most_mechanisms = 16;
  static constexpr std::size_t most_bindings = 48;

  std::uint64_t pick(std::uint64_t below) { return random_() % below; }

  bool chance(std::uint64_t one_in) { return pick(one_in) == 0; }

  template <class T>
  std::size_t any(const std::vector<T>& of) {
    return pick(of.size());
  }

  DeviceKey any_device() { return DeviceKey::device(static_cast<std::uint32_t>(pick(2))); }

  template <class T>
  static T take(std::vector<T>& from, std::size_t at) {
    T taken = std::move(from.at(at));
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
    return taken;
  }

  [[nodiscard]] std::size_t registered() const {
    std::size_t count = 0;
    for (const BindingModel::Mechanism& each : model_.mechanisms) {
      count += each.registered ? 1U : 0U;
    }
    return count;
  }

  void check_mechanism(std::size_t number) const {
    const BindingModel::Mechanism& expected = model_.mechanisms.at(number);
    const auto now = registry_.snapshot(mechanisms_.at(number));
    ASSERT_EQ(now.has_value(), expected.registered);
    std::size_t in_memory = 0;
    for (const BindingModel::Allocation& each : model_.allocations) {
      in_memory += each.in_memory && model_.bindings.at(each.binding).mechanism == number ? 1U : 0U;
    }
    ASSERT_EQ(recorders_.at(number)->live(), in_memory);
    if (!now) {
      return;
    }
    ASSERT_EQ(now->lifecycle, expected.lifecycle);
    ASSERT_EQ(now->live_allocations, model_.count(number, State::live));
    ASSERT_EQ(now->queued_releases, model_.count(number, State::queued));
    ASSERT_EQ(now->active_operations, now->queued_releases);
    ASSERT_EQ(now->quarantined_allocations, model_.quarantined(number));
    check_quarantine(number, *now);
  }

  void check_quarantine(std::size_t number, const MechanismSnapshot& now) const {
    const QuarantinedAllocations list = must(registry_.quarantined(mechanisms_.at(number)));
    ASSERT_EQ(list.size(), now.quarantined_allocations);
    Bytes retained;
    for (const QuarantinedAllocation each : list) {
      const auto found = numbers_.find(each.identity.generation.serial());
      ASSERT_NE(found, numbers_.end());
      const BindingModel::Allocation& expected = model_.allocations.at(found->second);
      ASSERT_EQ(each.identity, identities_.at(found->second));
      ASSERT_EQ(each.address, spans_.at(found->second).address);
      ASSERT_EQ(each.bytes, expected.bytes);
      ASSERT_EQ(each.alignment, alignment);
      ASSERT_EQ(each.state, expected.state);
      ASSERT_EQ(each.reason, expected.reason);
      ASSERT_EQ(each.retained_bytes, expected.retained);
      retained += each.retained_bytes;
    }
    ASSERT_EQ(now.quarantined_bytes, retained);
  }

  void register_ground() {
    if (contexts_.size() >= most_contexts) {
      return;
    }
    const DeviceKey device = any_device();
    contexts_.push_back(must(registry_.register_provider_context(device, nullptr)));
    pin_sources_.push_back(must(registry_.pin_source(contexts_.back())));
    model_.contexts.push_back({.device = device});
    const DeviceKey other = chance(8) ? any_device() : device;
    authorities_.push_back(must(registry_.register_authority(other, nullptr)));
    model_.authorities.push_back({.device = other});
  }

  void register_mechanism() {
    if (contexts_.empty() || mechanisms_.size() >= most_mechanisms) {
      return;
    }
    const std::size_t context = any(contexts_);
    const std::size_t authority = chance(4) ? any(authorities_) : context;
    const DeviceKey device = chance(8) ? any_device() : contexts_.at(context).device;
    auto recorder = std::make_shared<Recorder>(device);
    const auto made =
        registry_.register_allocator(contexts_.at(context), authorities_.at(authority), recorder);
    ASSERT_EQ(verdict_of(made), model_.register_mechanism(context, authority, device));
    if (made) {
      mechanisms_.push_back(*made);
      recorders_.push_back(std::move(recorder));
    }
  }

  void change_mechanism() {
    if (mechanisms_.empty()) {
      return;
    }
    const std::size_t number = any(mechanisms_);
    const RegisteredMechanism& mechanism = mechanisms_.at(number);
    switch (pick(5)) {
      case 0:
        ASSERT_EQ(verdict_of(registry_.retire(mechanism)), model_.retire(number));
        break;
      case 1:
      case 2:
        ASSERT_EQ(verdict_of(registry_.remove(mechanism)), model_.remove(number));
        break;
      default:
        ASSERT_EQ(verdict_of(registry_.select(mechanism)), model_.select(number));
        break;
    }
  }

  void change_context() {
    if (contexts_.empty()) {
      return;
    }
    const std::size_t number = any(contexts_);
    switch (pick(6)) {
      case 0:
        ASSERT_EQ(verdict_of(registry_.retire_provider_context(contexts_.at(number))),
                  model_.retire_context(number));
        break;
      case 1:
        ASSERT_EQ(verdict_of(registry_.remove_provider_context(contexts_.at(number))),
                  model_.remove_context(number));
        break;
      case 2:
        ASSERT_EQ(verdict_of(registry_.remove_authority(authorities_.at(number))),
                  model_.remove_authority(number));
        break;
      default:
        ASSERT_EQ(verdict_of(registry_.confirm_context_terminated(contexts_.at(number))),
                  model_.confirm(number));
        break;
    }
  }

  void lose_or_end() {
    if (chance(3)) {
      const DeviceKey device = any_device();
      const std::string reason = "reason " + std::to_string(pick(1000));
      registry_.invalidate_device(device, ErrorText::copy(reason));
      model_.invalidate(device, reason);
    }
  }

  void keep_binding(MemoryBinding binding, std::size_t mechanism) {
    ASSERT_EQ(binding.identity().mechanism, mechanisms_.at(mechanism).identity);
    bindings_.push_back(std::move(binding));
    model_.bindings.push_back({.mechanism = mechanism});
  }

  void bind() {
    if (bindings_.size() >= most_bindings || mechanisms_.empty()) {
      return;
    }
    if (chance(2)) {
      const DeviceKey device = any_device();
      const auto& slot = model_.selected[device.index];
      auto bound = registry_.bind(device);
      ASSERT_EQ(verdict_of(bound), slot ? std::nullopt : refused<NoSelectedMechanism>());
      if (bound) {
        keep_binding(*std::move(bound), *slot);
      }
      return;
    }
    const std::size_t number = any(mechanisms_);
    const BindingModel::Mechanism& mechanism = model_.mechanisms.at(number);
    auto bound = registry_.bind(mechanisms_.at(number));
    ASSERT_EQ(verdict_of(bound),
              mechanism.registered ? BindingModel::inactive(mechanism)
                                   : refused<UnregisteredMechanism>());
    if (bound) {
      keep_binding(*std::move(bound), number);
    }
  }

  void keep_owner(OwningAllocation owner, std::size_t binding) {
    const AllocationIdentity identity = owner.identity();
    ASSERT_EQ(identity.binding, bindings_.at(binding).identity());
    ASSERT_TRUE(numbers_.emplace(identity.generation.serial(), identities_.size()).second);
    model_.allocations.push_back({.binding = binding, .bytes = owner.size()});
    spans_.push_back(owner.span());
    identities_.push_back(identity);
    owners_.push_back({.number = identities_.size() - 1, .value = std::move(owner)});
  }

  void allocate() {
    if (bindings_.empty()) {
      return;
    }
    const std::size_t binding = any(bindings_);
    const std::size_t number = model_.bindings.at(binding).mechanism;
    Verdict expected = BindingModel::inactive(model_.mechanisms.at(number));
    const char* const fault = chance(8) ? "allocate" : chance(8) ? "allocate_throws" : nullptr;
    const bool bad = chance(16);
    if (!expected && bad) {
      expected = refused<MemoryError>();
    } else if (!expected && fault != nullptr) {
      recorders_.at(number)->faults().fail_next(fault);
      expected =
          std::string(fault) == "allocate" ? refused<MemoryError>() : refused<CallbackFailed>();
    }
    auto owner = bindings_.at(binding).allocate(Bytes{pick(500)}, bad ? Bytes{3} : alignment);
    ASSERT_EQ(verdict_of(owner), expected);
    if (owner) {
      keep_owner(*std::move(owner), binding);
    } else if (const auto* lost = owner.error().as<DeviceLost>()) {
      ASSERT_EQ(lost->reason.view(), model_.mechanisms.at(number).reason);
    }
  }

  void adopt() {
    if (bindings_.empty()) {
      return;
    }
    const std::size_t binding = any(bindings_);
    const std::size_t number = model_.bindings.at(binding).mechanism;
    Recorder& recorder = *recorders_.at(number);
    const AllocationSpan span{
        .address = recorder.make(100_B, alignment), .bytes = 100_B, .alignment = alignment};
    auto owner = bindings_.at(binding).adopt_allocation(span, attest_sole_owner);
    ASSERT_EQ(verdict_of(owner), BindingModel::inactive(model_.mechanisms.at(number)));
    if (owner) {
      keep_owner(*std::move(owner), binding);
    } else {
      ASSERT_TRUE(recorder.release(span).is_complete());
    }
  }

  void make_view() {
    if (owners_.empty()) {
      return;
    }
    const auto& owner = owners_.at(any(owners_));
    BindingModel::Allocation& allocation = model_.allocations.at(owner.number);
    const Bytes offset{pick(allocation.bytes.value + 2)};
    const Bytes size{chance(16) ? ~std::uint64_t{0} : pick(allocation.bytes.value + 2)};
    const ByteRange range{.offset = offset, .size = size};
    const bool fits = range.checked_end() && range.end() <= allocation.bytes;
    auto view = owner.value.view(offset, size);
    ASSERT_EQ(verdict_of(view),
              fits ? BindingModel::inactive(model_.mechanism_of(allocation))
                   : refused<ViewOutOfBounds>());
    if (view) {
      ++allocation.views;
      views_.push_back({.number = owner.number, .value = *std::move(view)});
    }
  }

  void change_view() {
    if (views_.empty()) {
      return;
    }
    const std::size_t at = any(views_);
    if (chance(3) && views_.size() < 20) {
      const auto copy = views_.at(at);
      views_.push_back(copy);
      ++model_.allocations.at(copy.number).views;
    } else {
      const auto ended = take(views_, at);
      --model_.allocations.at(ended.number).views;
    }
  }

  void use_view() {
    if (views_.empty()) {
      return;
    }
    const auto& view = views_.at(any(views_));
    const BindingModel::Allocation& allocation = model_.allocations.at(view.number);
    const std::size_t binding = chance(4) ? any(bindings_) : allocation.binding;
    Verdict expected =
        BindingModel::inactive(model_.mechanisms.at(model_.bindings.at(binding).mechanism));
    if (!expected && binding != allocation.binding) {
      expected = refused<BindingMismatch>();
    } else if (!expected && allocation.state != State::live) {
      expected = refused<StaleAllocation>();
    }
    const auto seen = bindings_.at(binding).with_view(
        view.value, [](ValidatedMemoryView part) { return part.address; });
    ASSERT_EQ(verdict_of(seen), expected);
    if (seen) {
      ASSERT_EQ(*seen, spans_.at(view.number).address + view.value.offset());
    }
  }

  void prepare() {
    if (owners_.empty()) {
      return;
    }
    const std::size_t at = any(owners_);
    const std::size_t number = owners_.at(at).number;
    const std::size_t own = model_.allocations.at(number).binding;
    const std::size_t binding = chance(4) ? any(bindings_) : own;
    Verdict expected =
        BindingModel::unreleasable(model_.mechanisms.at(model_.bindings.at(binding).mechanism));
    if (!expected && binding != own) {
      expected = refused<BindingMismatch>();
    } else if (!expected) {
      expected = model_.prepare(number);
    }
    auto request = bindings_.at(binding).prepare_release(owners_.at(at).value);
    ASSERT_EQ(verdict_of(request), expected);
    ASSERT_EQ(owners_.at(at).value.empty(), request.has_value());
    if (request) {
      ASSERT_EQ(request->identity(), identities_.at(number));
      static_cast<void>(take(owners_, at));
      requests_.push_back({.number = number, .value = *std::move(request)});
    }
  }

  /// What the mechanism will answer to the release of an allocation that is queued in the model.
  void expect_execution(std::size_t number) {
    BindingModel::Allocation& allocation = model_.allocations.at(number);
    if (model_.mechanism_of(allocation).lifecycle == MechanismLifecycle::device_lost) {
      model_.settle(
          number, State::device_lost, QuarantineReason(Kind::device_lost), allocation.bytes);
      return;
    }
    ReleaseAnswer answer;
    switch (pick(6)) {
      case 0:
        answer = {.kind = ReleaseAnswer::Kind::partial,
                  .unmapped = {},
                  .retained = Bytes{pick(allocation.bytes.value + 1)}};
        model_.settle(number,
                      State::partially_unmapped,
                      QuarantineReason(Kind::partial_release),
                      answer.retained);
        break;
      case 1:
        answer.kind = ReleaseAnswer::Kind::unchanged;
        model_.settle(number,
                      State::quarantined,
                      QuarantineReason(Kind::allocator_refused),
                      allocation.bytes);
        break;
      case 2:
        answer.kind = ReleaseAnswer::Kind::throws;
        model_.settle(
            number, State::quarantined, QuarantineReason(Kind::release_aborted), allocation.bytes);
        break;
      default:
        model_.settle(number, State::released, allocation.reason, {});
        allocation.in_memory = false;
        break;
    }
    recorders_.at(model_.bindings.at(allocation.binding).mechanism)->answer_next(answer);
  }

  void expect_outcome(const ReleaseOutcome& outcome, std::size_t number) const {
    const BindingModel::Allocation& expected = model_.allocations.at(number);
    ASSERT_EQ(outcome.state(), expected.state);
    ASSERT_EQ(outcome.accounting().allocation_bytes, expected.bytes);
    if (outcome.residual()) {
      ASSERT_EQ(outcome.residual()->reason, expected.reason);
      ASSERT_EQ(outcome.residual()->retained_bytes, expected.retained);
      ASSERT_EQ(outcome.residual()->address, spans_.at(number).address);
    }
  }

  void release() {
    if (owners_.empty()) {
      return;
    }
    const std::size_t at = any(owners_);
    const std::size_t number = owners_.at(at).number;
    const Verdict expected = model_.prepare(number);
    if (!expected) {
      expect_execution(number);
    }
    const auto outcome = owners_.at(at).value.release_now();
    ASSERT_EQ(verdict_of(outcome), expected);
    ASSERT_EQ(owners_.at(at).value.empty(), outcome.has_value());
    if (outcome) {
      expect_outcome(*outcome, number);
      static_cast<void>(take(owners_, at));
    }
  }

  void reject() {
    if (owners_.empty()) {
      return;
    }
    const std::size_t at = any(owners_);
    const std::size_t number = owners_.at(at).number;
    const auto why = static_cast<DeferredEnqueueRejection>(pick(4));
    test::RefusingQueue queue(why);
    const Verdict expected = model_.prepare(number);
    const auto given = owners_.at(at).value.release_deferred(queue);
    ASSERT_EQ(verdict_of(given), expected);
    if (!given) {
      return;
    }
    static_cast<void>(take(owners_, at));
    model_.settle(
        number,
        why == DeferredEnqueueRejection::device_lost ? State::device_lost : State::quarantined,
        QuarantineReason::enqueue_rejected(why),
        model_.allocations.at(number).bytes);
    ASSERT_EQ(given->rejection(), why);
    ASSERT_TRUE(given->outcome().has_value());
    expect_outcome(*given->outcome(), number);
  }

  void drop_owner() {
    if (!owners_.empty()) {
      model_.drop_owner(take(owners_, any(owners_)).number);
    }
  }

  void settle() {
    if (requests_.empty()) {
      return;
    }
    auto request = take(requests_, any(requests_));
    const std::size_t number = request.number;
    const Bytes bytes = model_.allocations.at(number).bytes;
    switch (pick(6)) {
      case 0: {
        model_.settle(number, State::quarantined, QuarantineReason(Kind::abandoned_request), bytes);
        const PreparedAllocationRelease abandoned = std::move(request.value);
        return;
      }
      case 1:
        model_.settle(number, State::quarantined, QuarantineReason(Kind::fence_failed), bytes);
        expect_outcome(request.value.quarantine(UnexecutedReason::fence_failed()), number);
        return;
      case 2:
        model_.settle(number, State::device_lost, QuarantineReason(Kind::device_lost), bytes);
        expect_outcome(request.value.quarantine_device_lost(), number);
        return;
      default:
        expect_execution(number);
        expect_outcome(request.value.execute(), number);
        return;
    }
  }

  void reclaim() {
    if (identities_.empty()) {
      return;
    }
    const std::size_t number = recent();
    auto request = registry_.reclaim(identities_.at(number));
    ASSERT_EQ(verdict_of(request), model_.reclaim(number));
    if (request) {
      requests_.push_back({.number = number, .value = *std::move(request)});
    }
  }

  void reconcile() {
    if (identities_.empty()) {
      return;
    }
    const std::size_t number = recent();
    ASSERT_EQ(verdict_of(registry_.reconcile(identities_.at(number), attest_memory_gone)),
              model_.reconcile(number));
  }

  /// Mostly one of the last allocations.
  std::size_t recent() {
    const std::size_t all = identities_.size();
    return chance(4) ? pick(all) : all - 1 - pick(std::min<std::size_t>(all, 12));
  }

  void pin() {
    if (contexts_.empty()) {
      return;
    }
    if (!pins_.empty() && chance(2)) {
      --model_.contexts.at(take(pins_, any(pins_)).number).pins;
      return;
    }
    const std::size_t number = any(contexts_);
    auto pinned = pin_sources_.at(number)->pin();
    const BindingModel::Context& context = model_.contexts.at(number);
    ASSERT_EQ(pinned.has_value(),
              context.registered && context.lifecycle == ProviderContextLifecycle::active);
    if (pinned) {
      ASSERT_EQ((*pinned)->context(), contexts_.at(number).identity);
      pins_.push_back({.number = number, .value = *std::move(pinned)});
      ++model_.contexts.at(number).pins;
    }
  }

  std::mt19937_64 random_;
  BindingRegistry registry_ = must(BindingRegistry::create());
  BindingModel model_;
  std::vector<RegisteredProviderContext> contexts_;
  std::vector<RegisteredAuthority> authorities_;
  std::vector<std::shared_ptr<ProviderContextPinSource>> pin_sources_;
  std::vector<RegisteredMechanism> mechanisms_;
  std::vector<std::shared_ptr<Recorder>> recorders_;
  std::vector<MemoryBinding> bindings_;
  std::vector<AllocationIdentity> identities_;
  std::vector<AllocationSpan> spans_;
  std::map<std::uint64_t, std::size_t> numbers_;  // of an allocation, by its generation
  std::vector<Numbered<OwningAllocation>> owners_;
  std::vector<Numbered<PreparedAllocationRelease>> requests_;
  std::vector<Numbered<OwnedView>> views_;
  std::vector<Numbered<std::unique_ptr<ProviderContextPin>>> pins_;
};

TEST(BindingWalk, AgreesWithNaiveBooksAfterEveryStep) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment here
  const bool soak = std::getenv("MEMSTRATA_SOAK") != nullptr;
  const std::uint64_t seeds = soak ? 400 : 30;

  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    BindingWalk walk(seed);
    for (int step = 0; step < 600; ++step) {
      walk.step();
      walk.check();
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace memstrata
