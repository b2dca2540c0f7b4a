// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/release_state.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace memstrata {
namespace {

using State = AllocationReleaseState;
using Event = AllocationReleaseEvent;
using Kind = QuarantineReason::Kind;
using Rejection = DeferredEnqueueRejection;

struct StateRow {
  State state;
  bool retains;
  bool permits;
  bool terminal;
  bool quarantine;
  std::string_view name;
};

constexpr std::array state_table{
    StateRow{State::live, true, true, false, false, "live"},
    StateRow{State::queued, true, true, false, false, "queued"},
    StateRow{State::partially_unmapped, true, false, true, true, "partially unmapped"},
    StateRow{State::released, false, false, true, false, "released"},
    StateRow{State::device_lost, true, false, true, true, "device lost"},
    StateRow{State::quarantined, true, false, true, true, "quarantined"},
};

struct EventRow {
  Event event;
  std::string_view spelling;
};

#define MEMSTRATA_EVENT_ROW(event) \
  EventRow {                       \
    Event::event, #event           \
  }

constexpr std::array event_table{
    MEMSTRATA_EVENT_ROW(prepare),
    MEMSTRATA_EVENT_ROW(drop_owner),
    MEMSTRATA_EVENT_ROW(complete),
    MEMSTRATA_EVENT_ROW(stop_midway),
    MEMSTRATA_EVENT_ROW(refuse),
    MEMSTRATA_EVENT_ROW(abort_release),
    MEMSTRATA_EVENT_ROW(abandon),
    MEMSTRATA_EVENT_ROW(reject),
    MEMSTRATA_EVENT_ROW(fail_fence),
    MEMSTRATA_EVENT_ROW(lose_device),
    MEMSTRATA_EVENT_ROW(reclaim),
    MEMSTRATA_EVENT_ROW(reconcile),
    MEMSTRATA_EVENT_ROW(confirm_context_terminated),
};

#undef MEMSTRATA_EVENT_ROW

using Then = std::optional<State>;
constexpr Then no = std::nullopt;
constexpr Then queued = State::queued;
constexpr Then gone = State::released;
constexpr Then lost = State::device_lost;
constexpr Then part = State::partially_unmapped;
constexpr Then held = State::quarantined;

// Columns: live, queued, partially unmapped, released, device lost, quarantined, as in `state_table`.
constexpr std::array<std::array<Then, state_table.size()>, event_table.size()> transitions{{
    {queued, no, no, no, no, no},      // prepare
    {held, no, no, no, no, no},        // drop_owner
    {no, gone, no, no, no, no},        // complete
    {no, part, no, no, no, no},        // stop_midway
    {no, held, no, no, no, no},        // refuse
    {no, held, no, no, no, no},        // abort_release
    {no, held, no, no, no, no},        // abandon
    {no, held, no, no, no, no},        // reject
    {no, held, no, no, no, no},        // fail_fence
    {no, lost, no, no, no, no},        // lose_device
    {no, no, no, no, no, queued},      // reclaim
    {no, no, gone, no, gone, gone},    // reconcile
    {gone, no, gone, no, gone, gone},  // confirm_context_terminated
}};

struct ReasonRow {
  QuarantineReason reason;
  bool reclaim;
};

constexpr std::array reason_table{
    ReasonRow{QuarantineReason(Kind::abandoned_request), true},
    ReasonRow{QuarantineReason(Kind::owner_dropped), true},
    ReasonRow{QuarantineReason::enqueue_rejected(Rejection::closed), true},
    ReasonRow{QuarantineReason::enqueue_rejected(Rejection::full), true},
    ReasonRow{QuarantineReason::enqueue_rejected(Rejection::device_lost), true},
    ReasonRow{QuarantineReason::enqueue_rejected(Rejection::refused), true},
    ReasonRow{QuarantineReason(Kind::device_lost), false},
    ReasonRow{QuarantineReason(Kind::mechanism_terminated), false},
    ReasonRow{QuarantineReason(Kind::partial_release), false},
    ReasonRow{QuarantineReason(Kind::allocator_refused), false},
    ReasonRow{QuarantineReason(Kind::release_aborted), false},
    ReasonRow{QuarantineReason(Kind::fence_failed), true},
};

// B-057, G-160
TEST(AllocationReleaseState, AnswersEveryQuestionAsTheTableSays) {
  for (const StateRow& row : state_table) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(retains_ownership(row.state), row.retains);
    EXPECT_EQ(permits_allocator_call(row.state), row.permits);
    EXPECT_EQ(is_terminal(row.state), row.terminal);
    EXPECT_EQ(is_quarantine(row.state), row.quarantine);
    EXPECT_EQ(to_string(row.state), row.name);
  }
}

TEST(AllocationReleaseState, OnlyReleasedGivesOwnershipUp) {
  int without_owner = 0;
  for (const StateRow& row : state_table) {
    without_owner += retains_ownership(row.state) ? 0 : 1;
  }

  EXPECT_EQ(without_owner, 1);
  EXPECT_FALSE(retains_ownership(State::released));
}

TEST(AllocationReleaseNext, EveryPairLeadsWhereTheTableSays) {
  for (std::size_t event = 0; event < event_table.size(); ++event) {
    for (std::size_t state = 0; state < state_table.size(); ++state) {
      SCOPED_TRACE(std::string(state_table[state].name) + " and " +
                   std::string(event_table[event].spelling));
      EXPECT_EQ(next(state_table[state].state, event_table[event].event),
                transitions[event][state]);
    }
  }
}

TEST(AllocationReleaseNext, NothingLeadsBackToLiveOrOutOfReleased) {
  for (const EventRow& event : event_table) {
    EXPECT_EQ(next(State::released, event.event), std::nullopt) << event.spelling;
    for (const StateRow& state : state_table) {
      EXPECT_NE(next(state.state, event.event), State::live) << state.name << event.spelling;
    }
  }
}

TEST(AllocationReleaseEvent, IsNamedAsItsEnumeratorIsSpelled) {
  for (const EventRow& row : event_table) {
    EXPECT_EQ(to_string(row.event), row.spelling);
  }
}

TEST(QuarantineReason, EveryReasonHasAPhraseOfItsOwn) {
  std::set<std::string_view> phrases;
  for (const ReasonRow& row : reason_table) {
    EXPECT_FALSE(row.reason.phrase().empty());
    phrases.insert(row.reason.phrase());
  }

  EXPECT_EQ(phrases.size(), reason_table.size());
}

TEST(QuarantineReason, OnlyARejectionByTheQueueCarriesARejection) {
  for (const ReasonRow& row : reason_table) {
    EXPECT_EQ(row.reason.rejection().has_value(), row.reason.kind() == Kind::enqueue_rejected)
        << row.reason.phrase();
  }
}

TEST(QuarantineReason, PermitsReclaimWhereTheAllocatorWasNeverCalled) {
  for (const ReasonRow& row : reason_table) {
    EXPECT_EQ(row.reason.permits_reclaim(), row.reclaim) << row.reason.phrase();
  }
}

TEST(QuarantineReason, ARejectionIsNamedInParentheses) {
  constexpr std::array<std::string_view, 4> names{"closed", "full", "device lost", "refused"};
  constexpr std::array rejections{
      Rejection::closed, Rejection::full, Rejection::device_lost, Rejection::refused};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const QuarantineReason reason = QuarantineReason::enqueue_rejected(rejections[i]);

    EXPECT_EQ(reason.kind(), Kind::enqueue_rejected);
    EXPECT_EQ(reason.rejection(), rejections[i]);
    EXPECT_EQ(to_string(rejections[i]), names[i]);
    EXPECT_TRUE(reason.phrase().ends_with("(" + std::string(names[i]) + ")")) << reason.phrase();
  }
}

TEST(QuarantineReason, RejectionsAreDifferentReasons) {
  const auto full = QuarantineReason::enqueue_rejected(Rejection::full);

  EXPECT_EQ(full, QuarantineReason::enqueue_rejected(Rejection::full));
  EXPECT_NE(full, QuarantineReason::enqueue_rejected(Rejection::closed));
  EXPECT_NE(full, QuarantineReason(Kind::device_lost));
}

}  // namespace
}  // namespace memstrata
