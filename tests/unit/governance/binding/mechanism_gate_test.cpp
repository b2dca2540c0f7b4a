// SPDX-License-Identifier: Apache-2.0
#include "governance/binding/mechanism_gate.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "governance/binding/allocation_record.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"

namespace memstrata::detail {
namespace {

using Lifecycle = MechanismLifecycle;

/// A gate with one live allocation.
struct LiveGate {
  LiveGate() {
    EXPECT_EQ(gate.begin_call(), std::nullopt);
    gate.end_call_live();
  }

  MechanismGate gate;
};

GateFigures figures(Lifecycle lifecycle,
                    std::uint32_t calls,
                    std::uint32_t queued,
                    std::uint32_t live) {
  return {.lifecycle = lifecycle, .calls = calls, .queued = queued, .live = live};
}

TEST(MechanismGate, BeginsActiveAndQuiet) {
  const MechanismGate gate;

  EXPECT_EQ(gate.figures(), figures(Lifecycle::active, 0, 0, 0));
  EXPECT_TRUE(gate.figures().quiet());
  EXPECT_EQ(gate.lifecycle(), Lifecycle::active);
}

TEST(MechanismGate, CountsOneAllocationThroughItsLife) {
  MechanismGate gate;

  EXPECT_EQ(gate.begin_call(), std::nullopt);
  EXPECT_EQ(gate.figures(), figures(Lifecycle::active, 1, 0, 0));
  gate.end_call_live();
  EXPECT_EQ(gate.figures(), figures(Lifecycle::active, 0, 0, 1));
  EXPECT_EQ(gate.queue_live(), std::nullopt);
  EXPECT_EQ(gate.figures(), figures(Lifecycle::active, 0, 1, 0));
  EXPECT_EQ(gate.figures().active_operations(), 1U);
  gate.settle(1);

  EXPECT_TRUE(gate.figures().quiet());
}

TEST(MechanismGate, ADroppedOwnerIsNotLiveAndAReclaimedRecordIsQueued) {
  LiveGate live;

  EXPECT_EQ(live.gate.drop_live(), std::nullopt);
  EXPECT_TRUE(live.gate.figures().quiet());
  EXPECT_EQ(live.gate.queue_reclaimed(), std::nullopt);

  EXPECT_EQ(live.gate.figures(), figures(Lifecycle::active, 0, 1, 0));
}

TEST(MechanismGate, ARetiredOneBeginsNoCallAndStillReleases) {
  LiveGate live;
  EXPECT_EQ(live.gate.apply(MechanismEvent::retire), Lifecycle::retired);

  EXPECT_EQ(live.gate.begin_call(), Lifecycle::retired);
  EXPECT_EQ(live.gate.queue_live(), std::nullopt);
  live.gate.settle(1);
  EXPECT_EQ(live.gate.queue_reclaimed(), std::nullopt);
  live.gate.settle(1);

  EXPECT_EQ(live.gate.figures(), figures(Lifecycle::retired, 0, 0, 0));
}

TEST(MechanismGate, ALostOneRefusesEverythingAndChangesNoCount) {
  LiveGate live;
  EXPECT_EQ(live.gate.apply(MechanismEvent::invalidate_device), Lifecycle::device_lost);
  const GateFigures before = live.gate.figures();

  EXPECT_EQ(live.gate.begin_call(), Lifecycle::device_lost);
  EXPECT_EQ(live.gate.queue_live(), Lifecycle::device_lost);
  EXPECT_EQ(live.gate.drop_live(), Lifecycle::device_lost);
  EXPECT_EQ(live.gate.queue_reclaimed(), Lifecycle::device_lost);

  EXPECT_EQ(live.gate.figures(), before);
  EXPECT_EQ(before, figures(Lifecycle::device_lost, 0, 0, 1));
}

TEST(MechanismGate, ATerminatedOneOwnsNothingAndStaysTerminated) {
  LiveGate live;
  live.gate.apply(MechanismEvent::invalidate_device);

  live.gate.terminate();

  EXPECT_EQ(live.gate.figures(), figures(Lifecycle::terminated, 0, 0, 0));
  EXPECT_EQ(live.gate.apply(MechanismEvent::invalidate_device), Lifecycle::terminated);
  EXPECT_EQ(live.gate.apply(MechanismEvent::retire), Lifecycle::terminated);
  EXPECT_EQ(live.gate.begin_call(), Lifecycle::terminated);
  EXPECT_EQ(live.gate.queue_live(), Lifecycle::terminated);
}

TEST(MechanismGate, AnEventKeepsTheCounts) {
  LiveGate live;
  EXPECT_EQ(live.gate.begin_call(), std::nullopt);
  EXPECT_EQ(live.gate.queue_reclaimed(), std::nullopt);

  live.gate.apply(MechanismEvent::retire);
  EXPECT_EQ(live.gate.figures(), figures(Lifecycle::retired, 1, 1, 1));
  live.gate.apply(MechanismEvent::invalidate_device);
  EXPECT_EQ(live.gate.figures(), figures(Lifecycle::device_lost, 1, 1, 1));

  live.gate.end_call();
  live.gate.settle(1);
  EXPECT_EQ(live.gate.figures(), figures(Lifecycle::device_lost, 0, 0, 1));
}

TEST(MechanismGate, SettlesManyAtOnce) {
  MechanismGate gate;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(gate.queue_reclaimed(), std::nullopt);
  }

  gate.settle(999);

  EXPECT_EQ(gate.figures(), figures(Lifecycle::active, 0, 1, 0));
}

TEST(MechanismGate, CountsOfOneKindDoNotSpillIntoAnother) {
  MechanismGate gate;
  for (std::uint64_t i = 0; i < MechanismGate::most_calls; ++i) {
    ASSERT_EQ(gate.begin_call(), std::nullopt);
  }

  EXPECT_EQ(
      gate.figures(),
      figures(Lifecycle::active, static_cast<std::uint32_t>(MechanismGate::most_calls), 0, 0));
  gate.apply(MechanismEvent::invalidate_device);
  EXPECT_EQ(gate.lifecycle(), Lifecycle::device_lost);
  for (std::uint64_t i = 0; i < MechanismGate::most_calls; ++i) {
    gate.end_call();
  }

  EXPECT_EQ(gate.figures(), figures(Lifecycle::device_lost, 0, 0, 0));
}

TEST(MechanismGateDeathTest, OneCallMoreThanCanBeCountedStopsTheProgram) {
  MechanismGate gate;
  for (std::uint64_t i = 0; i < MechanismGate::most_calls; ++i) {
    ASSERT_EQ(gate.begin_call(), std::nullopt);
  }

  EXPECT_DEATH(static_cast<void>(gate.begin_call()),
               "too many calls in flight on one mechanism.*16383 and 16383");
}

TEST(MechanismGate, CountsExactlyFromManyThreads) {
  constexpr int threads = 4;
  constexpr int rounds = 2000;
  MechanismGate gate;
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&gate] {
        for (int i = 0; i < rounds; ++i) {
          EXPECT_EQ(gate.begin_call(), std::nullopt);
          gate.end_call_live();
          EXPECT_EQ(gate.queue_live(), std::nullopt);
          gate.settle(1);
        }
      });
    }
  }

  EXPECT_TRUE(gate.figures().quiet());
}

TEST(RecordControl, SurvivesItsWordForEveryState) {
  for (const AllocationReleaseState state : {AllocationReleaseState::live,
                                             AllocationReleaseState::queued,
                                             AllocationReleaseState::partially_unmapped,
                                             AllocationReleaseState::released,
                                             AllocationReleaseState::device_lost,
                                             AllocationReleaseState::quarantined}) {
    for (const bool held : {false, true}) {
      for (const std::uint32_t pins : {0U, 1U, 0xFFFF'FFFFU}) {
        const RecordControl control{.state = state, .held = held, .pins = pins};
        EXPECT_EQ(RecordControl::of(control.word()), control);
      }
    }
  }
}

TEST(RecordControl, OnePinMoreIsTheNextWord) {
  constexpr RecordControl none{.state = AllocationReleaseState::live, .held = true, .pins = 0};
  constexpr RecordControl one{.state = AllocationReleaseState::live, .held = true, .pins = 1};

  EXPECT_EQ(none.word() + 1, one.word());
}

TEST(AllocationRecord, GivesTheSpanThatItWasMadeFor) {
  AllocationRecord record;
  record.address = DeviceAddress{0x4000};
  record.bytes = 100_B;
  record.alignment_log2 = 63;

  EXPECT_EQ(record.span().address, DeviceAddress{0x4000});
  EXPECT_EQ(record.span().bytes, 100_B);
  EXPECT_EQ(record.span().alignment, Bytes{std::uint64_t{1} << 63U});
}

}  // namespace
}  // namespace memstrata::detail
