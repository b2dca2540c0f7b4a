/* SPDX-License-Identifier: Apache-2.0
 *
 * The release protocol of one mechanism, step by step as the implementation does it. One step here is one atomic
 * access there: to the gate word (lifecycle, calls, queued, live), to the control word of a record (state, held,
 * pins) or to the count of references, with what only its own thread, or only the holder of a mutex, can see before
 * and after it.
 *
 * Owners allocate, hand out views, and release now, later or not at all. A viewer uses a view and may be the last
 * to hold the mechanism. A poller runs a queue whose fences complete, fail or are lost. A healer reclaims and
 * reconciles what is in quarantine, with identities that may be stale by then, and selects the mechanism. A keeper
 * retires it, loses the device, confirms the end of the context, and removes the mechanism.
 *
 * Left out: addresses, sizes other than one, the second mechanism of a context, the order of the free list (any free
 * record may come next), spurious failures of compare-and-swap, and weak memory order, which the thread sanitizer
 * looks after.
 *
 * A seeded defect is chosen with -D; each must give a counter-example. tests/models/check_release_model.py runs all
 * of it, and holds the names and the table below against the C++ headers.
 */

/* `active` is a word of the language; nothing here needs it as that. */
#define active in_use

/* AllocationReleaseState */
mtype = { live, queued, partially_unmapped, released, device_lost, quarantined }
/* MechanismLifecycle and ProviderContextLifecycle, as far as they are not above */
mtype = { active, retired, terminated, retiring }
/* AllocationReleaseEvent */
mtype = { prepare, drop_owner, complete, stop_midway, refuse, abort_release, abandon, reject, fail_fence, lose_device,
          reclaim, reconcile, confirm_context_terminated }
/* MechanismEvent and ProviderContextEvent, as far as they are not above */
mtype = { retire, invalidate_device }

/* The state of an allocation after an event; 0: not allowed. The same table as next() in release_state.hpp. */
#define NEXT(s, e) ( \
  (e == prepare && s == live) -> queued : ( \
  (e == drop_owner && s == live) -> quarantined : ( \
  (e == complete && s == queued) -> released : ( \
  (e == stop_midway && s == queued) -> partially_unmapped : ( \
  (e == refuse && s == queued) -> quarantined : ( \
  (e == abort_release && s == queued) -> quarantined : ( \
  (e == abandon && s == queued) -> quarantined : ( \
  (e == reject && s == queued) -> quarantined : ( \
  (e == fail_fence && s == queued) -> quarantined : ( \
  (e == lose_device && s == queued) -> device_lost : ( \
  (e == reclaim && s == quarantined) -> queued : ( \
  (e == reconcile && s == partially_unmapped) -> released : ( \
  (e == reconcile && s == device_lost) -> released : ( \
  (e == reconcile && s == quarantined) -> released : ( \
  (e == confirm_context_terminated && s == live) -> released : ( \
  (e == confirm_context_terminated && s == partially_unmapped) -> released : ( \
  (e == confirm_context_terminated && s == device_lost) -> released : ( \
  (e == confirm_context_terminated && s == quarantined) -> released : 0 ))))))))))))))))))

/* The lifecycle of a mechanism after an event; 0: not allowed. The same table as next() in lifecycle.hpp. */
#define NEXT_LIFECYCLE(s, e) ( \
  (e == retire && s == active) -> retired : ( \
  (e == retire) -> s : ( \
  (e == invalidate_device && s == terminated) -> s : ( \
  (e == invalidate_device) -> device_lost : ( \
  (e == confirm_context_terminated && s == device_lost) -> terminated : 0 )))))

/* Who takes part. Everything at once is too much for one search; each scenario is searched in full. */
#ifndef FIRST
#define FIRST 1             /* allocations of the first owner */
#endif
#ifndef SECOND
#define SECOND 1            /* of the second owner */
#endif
#ifndef VIEWS
#define VIEWS 1             /* whether owners hand out views */
#endif
#ifndef QUEUE
#define QUEUE 1             /* whether releases go through the queue */
#endif
#ifndef HEALER
#define HEALER 1            /* whether somebody reclaims and reconciles */
#endif
#ifndef SELECT
#define SELECT 0            /* whether somebody selects the mechanism while it ends */
#endif

#define RECORDS 2
#define NOWHERE RECORDS
#define SIZE 2              /* bytes of each allocation; a release that stops midway keeps 1 */

#define IS_QUARANTINE(s) (s == partially_unmapped || s == device_lost || s == quarantined)
#define RELEASABLE(l) (l == active || l == retired)
/* Why a record is in quarantine is kept as the event that led there. */
#define PERMITS_RECLAIM(e) (e == drop_owner || e == abandon || e == reject || e == fail_fence)

typedef Record {
  mtype state = released;   /* with held and pins: the control word */
  bool held;
  byte pins;
  byte generation;
  mtype reason;
  byte retained;
  bool is_free = true;      /* on the free list */
  /* What the properties look at, and the protocol does not. */
  byte memory;              /* bytes that the allocator still has out for this generation */
  bool called;              /* its release was called for this generation */
  byte used                 /* view operations that run on it */
}
Record rec[RECORDS];

/* The gate word. */
mtype lifecycle = active;
byte calls, queued_releases, live_allocations;

/* The mechanism: references of the registry and of the bindings of owners and viewer. */
byte references = 1 + VIEWS + (SECOND > 0 -> 2 : 1);
bool ended;
bool mutex;
byte quarantined_count, quarantined_bytes;
bool allocator_there = true, authority_there = true, context_there = true;

/* The registry, and the context with its pins. */
bool registry_mutex, registered = true, selected;
mtype context = active;
byte context_pins;

/* The queue. */
chan queue = [RECORDS] of { byte };
bool queue_lost;

chan views = [1] of { byte, byte };
byte owners = (SECOND > 0 -> 2 : 1);   /* that still run */
byte producers;             /* of releases: the owners and the healer */
byte running;               /* processes */

/* Prepared releases whose records are not final; calls of the allocator that run. */
byte unsettled, in_allocator;

#define ALIVE assert(!ended)
#ifdef PREPARE_IGNORES_VIEWS
#define VIEWS_ALLOW(r) true
#else
#define VIEWS_ALLOW(r) rec[r].pins == 0
#endif
#ifdef RECLAIM_AFTER_CALL
#define MAY_RECLAIM(e) true
#else
#define MAY_RECLAIM(e) PERMITS_RECLAIM(e)
#endif

/* An event of an allocation. */
inline transit(r, event) {
  assert(NEXT(rec[r].state, event) != 0);
  rec[r].state = NEXT(rec[r].state, event)
}

inline end_mechanism() {
  assert(!ended && !registered && in_allocator == 0 && calls == 0 && unsettled == 0);
  ended = true;
  assert(allocator_there && authority_there && context_there);
  allocator_there = false;
  authority_there = false;  /* the registry may hold both longer; never shorter */
  context_there = false
}

/* References go. With the last one the mechanism ends, under its mutex: an owner may still be leaving it when the
   view that he left the last reference to is gone. */
inline drop(count) {
  atomic {
    assert(!ended && references >= count);
    references = references - count;
    if
    :: references == 0 ->
#ifndef END_WITHOUT_MUTEX
       !mutex ->
#endif
       end_mechanism()
    :: else
    fi
  }
}

/* Whoever leaves the mutex leaves true books: what is retained is what was not released. */
inline unlock() {
  ALIVE;
  assert(mutex);
  check_books();
  mutex = false
}

inline check_books() {
  if
  :: lifecycle != terminated ->
     assert(quarantined_count == IS_QUARANTINE(rec[0].state) + IS_QUARANTINE(rec[1].state));
     assert(quarantined_bytes == (IS_QUARANTINE(rec[0].state) -> rec[0].memory : 0)
                               + (IS_QUARANTINE(rec[1].state) -> rec[1].memory : 0))
  :: else
  fi
}

/* A selection names a mechanism that is registered and active. */
inline unlock_registry() {
  assert(registry_mutex);
  assert(!selected || (registered && lifecycle == active));
  registry_mutex = false
}

/* An operation of the gate: counts change by the numbers given, if `allowed`. */
inline gate(allowed, ok, calls_by, queued_by, live_by) {
  ALIVE;
  ok = (allowed);
  if
  :: ok ->
     calls = calls + calls_by;
     queued_releases = queued_releases + queued_by;
     live_allocations = live_allocations + live_by;
     assert(calls < 200 && queued_releases < 200 && live_allocations < 200)    /* none went below zero */
  :: else
  fi
}
inline gate_always(calls_by, queued_by, live_by) {
  ALIVE;
  calls = calls + calls_by;
  queued_releases = queued_releases + queued_by;
  live_allocations = live_allocations + live_by;
  assert(calls < 200 && queued_releases < 200 && live_allocations < 200)
}

inline give_back(r) {
  ALIVE;
  assert(!rec[r].is_free && !rec[r].held && rec[r].pins == 0 && rec[r].state == released);
  rec[r].called = false;                /* the next generation begins */
  rec[r].is_free = true
}

inline enter_quarantine(r, event, kept) {
  assert(mutex && kept == rec[r].memory);
  rec[r].reason = event;
  rec[r].retained = kept;
  quarantined_count++;
  quarantined_bytes = quarantined_bytes + kept
}

inline leave_quarantine(r) {
  assert(mutex && quarantined_count > 0 && quarantined_bytes >= rec[r].retained);
  quarantined_count--;
  quarantined_bytes = quarantined_bytes - rec[r].retained;
  rec[r].retained = 0;                  /* nobody reads these outside quarantine */
  rec[r].reason = 0
}

/* A prepared release goes to quarantine. The record's final state first, then the gate; the caller then drops the
   reference. */
inline keep_prepared(r, event, kept) {
  atomic {
    !mutex -> ALIVE; mutex = true;
    enter_quarantine(r, event, kept);
#ifdef SETTLE_FIRST
    gate_always(0, -1, 0)
#else
    assert(rec[r].held);
    transit(r, event);
    rec[r].held = false;
    unsettled--
#endif
  };
  d_step {
#ifdef SETTLE_FIRST
    transit(r, event);
    rec[r].held = false;
    unsettled--;
#else
    gate_always(0, -1, 0);
#endif
    unlock()
  }
}

/* Calls the allocator for a prepared release, unless the device is lost. `count` grows if it completes; the caller
   ends the operation with `settle`. */
inline execute(r, seen, count) {
  d_step {
    ALIVE;
    seen = lifecycle;
    assert(seen != terminated);         /* nothing is queued there */
#ifdef EXECUTE_IGNORES_LOSS
    seen = active;
#endif
    if
    :: seen != device_lost ->           /* the call begins */
       assert(RELEASABLE(lifecycle) && allocator_there);
       assert(rec[r].state == queued && rec[r].held && rec[r].pins == 0 && rec[r].used == 0);
       assert(!rec[r].called && rec[r].memory == SIZE);
       rec[r].called = true;
       in_allocator++
    :: else
    fi
  };
  if
  :: seen == device_lost -> keep_prepared(r, lose_device, SIZE)
  :: else ->
     if
     :: d_step {
          rec[r].memory = 0;
          in_allocator--;
#ifdef SETTLE_FIRST
          skip
        };
        d_step {
#endif
          transit(r, complete);
          rec[r].held = false;
          unsettled--;
          give_back(r);
          count++
        }
     :: d_step { rec[r].memory = 1; in_allocator-- };
        keep_prepared(r, stop_midway, 1)
     :: in_allocator--;
        if
        :: keep_prepared(r, refuse, SIZE)
        :: keep_prepared(r, abort_release, SIZE)
        fi
     fi
  fi;
  seen = 0
}

inline settle(count, handled) {
  if
  :: count > 0 -> d_step { gate_always(0, -count, 0); count = 0 }
  :: else
  fi;
  drop(handled)
}

/* A prepared release ends: at once, because its holder forgets it, or through the queue, which takes a pin of the
   context first. */
inline dispose(r, seen, count) {
  if
  :: execute(r, seen, count);
     settle(count, 1)
  :: keep_prepared(r, abandon, SIZE);
     drop(1)
  :: QUEUE && context != active ->
     keep_prepared(r, reject, SIZE);
     drop(1)
  :: atomic { QUEUE && context == active -> context_pins++ };
     atomic {
       if
       :: queue_lost -> context_pins--; seen = device_lost
       :: else -> queue!r
       fi
     };
     if
     :: seen == device_lost ->
        keep_prepared(r, lose_device, SIZE);
        drop(1);
        seen = 0
     :: else
     fi
  fi
}

/* The last view that outlives its owner drops his reference, and gives the record back if it was reconciled. */
inline unpin(r, last, gone) {
  d_step {
    ALIVE;
    assert(rec[r].pins > 0);
    rec[r].pins--;
    last = (rec[r].pins == 0 && !rec[r].held);
    gone = (last && rec[r].state == released)
  };
#ifndef REUSE_OF_PINNED
  if
  :: gone -> d_step { give_back(r); gone = false }
  :: else
  fi;
#endif
  if
  :: last -> d_step { last = false; gone = false }; drop(1)
  :: else
  fi
}

/* The compare-and-swap on the record first, then the gate. */
inline try_prepare(r, ok) {
  d_step {
    ALIVE;
    ok = (RELEASABLE(lifecycle) && rec[r].state == live && rec[r].held && VIEWS_ALLOW(r));
    if
    :: ok -> transit(r, prepare)
    :: else
    fi
  };
  if
  :: ok ->
     d_step {
       gate(RELEASABLE(lifecycle), ok, 0, 1, -1);
       if
       :: ok -> unsettled++
       :: else
       fi
     };
     if
     :: !ok -> rec[r].state = live
     :: else
     fi
  :: else
  fi
}

inline destroy_owner(r, ok) {
  atomic {
    !mutex -> mutex = true;
    gate(RELEASABLE(lifecycle), ok, 0, 0, -1)
  };
  d_step {
    assert(rec[r].state == live && rec[r].held);
    if
    :: ok ->
       enter_quarantine(r, drop_owner, SIZE);
       transit(r, drop_owner)
    :: else                             /* lost: it stays live until the end of the context is confirmed */
    fi;
    rec[r].held = false;
#ifdef VIEWS_KEEP_NOTHING
    ok = true
#else
    ok = (rec[r].pins == 0)
#endif
  };
  d_step { unlock() };
  if
  :: ok -> ok = false; drop(1)
  :: else
  fi
}

proctype Owner(byte turns) {
  byte r, count;
  mtype seen;
  bool ok;
  bool bound = true;
  do
  :: atomic {
       turns > 0 && lifecycle == active ->
       turns--;
       gate(lifecycle == active, ok, 1, 0, 0);
       assert(ok);
       ok = false;
       if
       :: rec[0].is_free -> r = 0
       :: rec[1].is_free -> r = 1
       :: else -> r = NOWHERE
       fi;
       if
       :: r != NOWHERE ->
          assert(rec[r].state == released && !rec[r].held && rec[r].pins == 0 && rec[r].memory == 0);
          assert(!rec[r].called);
          rec[r].is_free = false;
          rec[r].generation++
       :: else
       fi
     };
     if
     :: r == NOWHERE -> d_step { r = 0; gate_always(-1, 0, 0) }
     :: r != NOWHERE ->                 /* the allocator refuses */
        d_step { give_back(r); r = 0; gate_always(-1, 0, 0) }
     :: r != NOWHERE ->                 /* the allocator allocates */
        d_step {
          rec[r].memory = SIZE;
          references++;
          rec[r].state = live;
          rec[r].held = true
        };
        d_step { gate_always(-1, 0, 1) };
        if
        :: skip
        :: atomic {                     /* a view, given to the viewer */
             VIEWS && lifecycle == active && len(views) == 0 ->
             assert(rec[r].state == live);
             rec[r].pins++;
             views!r, rec[r].generation
           }
        fi;
        if
        :: turns == 0 -> bound = false; drop(1)         /* the owner outlives its binding */
        :: else
        fi;
        if
        :: skip
        :: try_prepare(r, ok)
        fi;
        if
        :: ok -> ok = false; dispose(r, seen, count)
        :: else -> destroy_owner(r, ok)
        fi;
        r = 0
     fi
  :: turns == 0 || lifecycle != active -> break
  od;
  if
  :: bound -> bound = false; drop(1)
  :: else
  fi;
  atomic { turns = 0; owners--; producers--; running-- }
}

proctype Viewer() {
  byte r, generation;
  bool ok, last, gone;
  bool bound = true;         /* has a binding of its own */
  do
  :: views?r, generation ->
     if
     :: bound ->
        if
        :: lifecycle == active ->       /* an operation on the view */
           d_step { gate(lifecycle == active, ok, 1, 0, 0) };
           if
           :: ok ->
              d_step {
                ok = (rec[r].state == live && rec[r].generation == generation);
                if
                :: ok -> rec[r].pins++; rec[r].used++
                :: else
                fi
              };
              if
              :: ok ->
                 d_step {
                   assert(rec[r].memory == SIZE && rec[r].generation == generation);
                   rec[r].used--;
                   ok = false;
                   gate_always(-1, 0, 0)
                 };
                 unpin(r, last, gone)
              :: else -> d_step { gate_always(-1, 0, 0) }
              fi
           :: else
           fi
        :: skip
        fi;
        if
        :: bound = false; drop(1)
        :: skip
        fi
     :: else
     fi;
     assert(rec[r].generation == generation);
     generation = 0;
     unpin(r, last, gone);
     r = 0
  :: owners == 0 && len(views) == 0 -> break
  od;
  if
  :: bound -> bound = false; drop(1)
  :: else
  fi;
  running--
}

/* One thread at a time runs releases, first in, first out. The books first, then the pins. */
proctype Poller() {
  byte r, count, handled, done;
  mtype seen;
  do
  :: len(queue) > 0 && !queue_lost && done < 2 ->
     if
     :: queue_lost = true               /* a fence says so */
     :: queue?r;                        /* its fence failed */
        keep_prepared(r, fail_fence, SIZE);
        drop(1);
        done++
     :: queue?r;                        /* its fence completed */
        execute(r, seen, count);
        handled++;
        done++
     fi;
     r = 0
  :: done > 0 ->                        /* the fence of the next one is pending */
     if
     :: handled > 0 -> settle(count, handled); handled = 0
     :: else
     fi;
     d_step { assert(context_pins >= done); context_pins = context_pins - done; done = 0 }
  :: queue_lost && len(queue) > 0 && done == 0 ->
     queue?r;
     keep_prepared(r, lose_device, SIZE);
     drop(1);
     d_step { context_pins--; r = 0 }
  :: producers == 0 && len(queue) == 0 && done == 0 -> break
  od;
  running--
}

/* Reclaims, reconciles and selects, through the registry, with what it has seen before. */
proctype Healer() {
  byte r, generation, count;
  mtype seen;
  bool ok, found;
  do
  :: owners == 0 -> break
  :: SELECT && registered && !selected ->
     ok = (lifecycle == active);
#ifdef SELECT_OUTSIDE_LOCK
     atomic { !registry_mutex -> registry_mutex = true };
#else
     atomic { !registry_mutex -> registry_mutex = true; ok = (registered && lifecycle == active) };
#endif
     d_step {
       if
       :: ok -> selected = true
       :: else
       fi;
       ok = false;
       unlock_registry()
     }
  :: atomic {                           /* finds the mechanism, and a record in its list */
       HEALER && registered && quarantined_count > 0 ->
       references++;
       if
       :: IS_QUARANTINE(rec[0].state) -> r = 0; generation = rec[0].generation
       :: IS_QUARANTINE(rec[1].state) -> r = 1; generation = rec[1].generation
       :: else -> r = NOWHERE
       fi
     };
     if
     :: r == NOWHERE
     :: r != NOWHERE ->
        atomic {
          !mutex -> ALIVE; mutex = true;
          found = (IS_QUARANTINE(rec[r].state) && rec[r].generation == generation);
          found = (found && rec[r].pins == 0 && NEXT(rec[r].state, reclaim) != 0 && MAY_RECLAIM(rec[r].reason));
          if
          :: found ->
             found = false;
             gate(RELEASABLE(lifecycle), ok, 0, 1, 0);
             if
             :: ok -> unsettled++
             :: else -> unlock()
             fi
          :: else -> unlock()
          fi
        };
        if
        :: ok ->
           d_step {
             leave_quarantine(r);
             references++;
             assert(!rec[r].held);
             transit(r, reclaim);
             rec[r].held = true;
             rec[r].pins = 0;
             unlock()
           }
        :: else
        fi
     :: r != NOWHERE && !rec[r].used ->  /* nobody attests that memory is gone which an operation uses */
        atomic {
          !mutex -> ALIVE; mutex = true;
          found = (lifecycle != terminated && IS_QUARANTINE(rec[r].state) && rec[r].generation == generation);
          if
          :: found ->
             leave_quarantine(r);
             transit(r, reconcile);
             rec[r].memory = 0;
#ifndef REUSE_OF_PINNED
             found = (rec[r].pins == 0)
#endif
          :: else
          fi;
          if
          :: !found -> unlock()
          :: else
          fi
        };
        if
        :: found -> d_step { give_back(r); found = false; unlock() }
        :: else
        fi
     fi;
     generation = 0;
     drop(1);
     if
     :: ok -> ok = false; dispose(r, seen, count)
     :: else
     fi;
     r = 0
  od;
  atomic { producers--; running-- }
}

proctype Keeper() {
  bool ok;
  do
  :: lifecycle == active ->             /* the mechanism retires, with its context where that matters */
     atomic {
       !registry_mutex -> registry_mutex = true;
       context = (QUEUE && context == active -> retiring : context);
       lifecycle = NEXT_LIFECYCLE(lifecycle, retire)
     };
     d_step { selected = false; unlock_registry() }
  :: RELEASABLE(lifecycle) ->
     atomic { !registry_mutex -> registry_mutex = true; context = device_lost };
     atomic {
       !mutex -> mutex = true;
       lifecycle = NEXT_LIFECYCLE(lifecycle, invalidate_device);
       unlock()
     };
     d_step { selected = false; unlock_registry() }
  :: QUEUE && !queue_lost -> queue_lost = true
  :: lifecycle == device_lost && calls + queued_releases == 0 && context_pins == 0 ->
     atomic { !registry_mutex -> registry_mutex = true; ok = (calls + queued_releases == 0) };
     ok = (ok && context_pins == 0);
     if
     :: ok ->
        atomic {
          !mutex -> mutex = true;
          assert(calls == 0 && queued_releases == 0 && unsettled == 0 && in_allocator == 0 && context_pins == 0);
          /* One whose preparation the gate is about to refuse looks queued for a moment. */
          assert(rec[0].state == released || rec[0].state == queued
                 || NEXT(rec[0].state, confirm_context_terminated) == released);
          assert(rec[1].state == released || rec[1].state == queued
                 || NEXT(rec[1].state, confirm_context_terminated) == released);
          lifecycle = NEXT_LIFECYCLE(lifecycle, confirm_context_terminated);
          assert(lifecycle == terminated);
          live_allocations = 0;
          quarantined_count = 0;
          quarantined_bytes = 0;
          rec[0].memory = 0;
          rec[1].memory = 0;
          unlock()
        };
        context = terminated
     :: else
     fi;
     d_step { ok = false; unlock_registry() }
  :: lifecycle != active && calls + queued_releases + live_allocations + quarantined_count == 0 ->
     atomic {
       !registry_mutex && !mutex -> registry_mutex = true;
       ok = (lifecycle != active && calls + queued_releases + live_allocations + quarantined_count == 0)
     };
     if
     :: ok ->
        d_step {
          ok = false;
          assert(rec[0].memory == 0 && rec[1].memory == 0 && unsettled == 0 && in_allocator == 0);
          registered = false;
          selected = false;
          unlock_registry()
        };
        drop(1);
        break
     :: else -> d_step { unlock_registry() }
     fi
  :: break
  od;
  running--
}

/* Zero active operations: all ownership is settled and no call runs. */
proctype Monitor() {
end:
  atomic {
    !(queued_releases >= unsettled && queued_releases >= in_allocator) ->
    assert(queued_releases >= unsettled);
    assert(queued_releases >= in_allocator)
  }
}

init {
  atomic {
    run Monitor();
    producers = owners + (HEALER || SELECT);
    running = producers + VIEWS + QUEUE + 1;
    run Keeper();
    if
    :: VIEWS -> run Viewer()
    :: else
    fi;
    if
    :: QUEUE -> run Poller()
    :: else
    fi;
    if
    :: HEALER || SELECT -> run Healer()
    :: else
    fi;
    run Owner(FIRST);
    if
    :: SECOND > 0 -> run Owner(SECOND)
    :: else
    fi
  };
  running == 0;
  d_step {
    assert(calls == 0 && queued_releases == 0 && unsettled == 0 && in_allocator == 0 && context_pins == 0);
    assert(!mutex && !registry_mutex && references == registered && ended == !registered);
    assert(lifecycle == terminated || live_allocations == (rec[0].state == live) + (rec[1].state == live));
    check_books()
  }
}
