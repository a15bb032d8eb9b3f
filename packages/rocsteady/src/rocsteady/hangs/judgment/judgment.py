"""The verdict: a pure function of what was seen so far and of a clock.

Three clocks. *Quiet* runs since the last progress and is what a person is told. *Waited* runs since
then too, but starts again when the machine slept, when we ourselves did not run, or when the run
was stopped; rules use it. *Still* runs since the last snapshot in which anything moved that the
training depends on.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from rocsteady.doctor.knowledge.waits import WaitKnowledge
from rocsteady.hangs.judgment.blame import blame, rank_records
from rocsteady.hangs.judgment.budgets import Budgets, LongestWaits, budgets
from rocsteady.hangs.judgment.phase_history import from_heartbeats
from rocsteady.hangs.judgment.snapshot_reading import HELD, Reading, moved, read
from rocsteady.hangs.judgment.verdict import Patience, Verdict
from rocsteady.hangs.looking.snapshot import in_native_code, is_in_native_code
from rocsteady.hangs.proof.wait_graph import wait_set
from rocsteady.hangs.proof.wait_set import Activity, WaitSet, changes, prove
from rocsteady.hangs.values import (
    Heartbeat,
    Snapshot,
    Tick,
    WayOut,
    finished,
    trainers,
    world_size,
)
from rocsteady.model import RankRecord, RunState, Value
from rocsteady.store.values import PhaseHistory
from rocsteady.wording import duration

SUSPENDED = 1.0  # seconds that the boot clock may run ahead before the machine must have slept
SNAPSHOT_EVERY = 1.0  # seconds, at first: three of them must fit before the shortest limit, 4.5 s
LOOKING_SHARE = 0.12  # of a core, for looking at many threads and processes
SNAPSHOT_SHARE = 1 / 15  # of the time waited: the longer it lasts, the less it matters when it ends
SNAPSHOT_AT_LEAST_EVERY = 30.0
MAX_SETS = 40  # of a row: as many as snapshots are kept; three prove as much

BY_SIGNAL = (WayOut.TIMER, WayOut.SIGNAL)  # ways out of a process, whatever its threads are at

Mark = tuple[tuple[int, int, int, str, float], ...]


class Pulse(Value, frozen=True, kw_only=True):
    """All that the verdict remembers of one attempt. Each attempt begins with a new one."""

    at: float  # of the last tick
    ahead: float  # of the boot clock before the monotonic one
    progress: float  # when it last was
    waited_from: float
    earlier: PhaseHistory
    interrupted: bool = False  # a person has sent it a ^C
    apart: bool = False  # other hosts have ranks too; heartbeats tell of those of this one
    heartbeats: tuple[Heartbeat, ...] = ()
    mark: Mark = ()  # of the heartbeats
    counters: int = 0
    printed_at: float | None = None  # when a counter last changed, while steps are what counts
    worked_at: float | None = None  # the same, and the snapshot before showed work
    before: Snapshot | None = None  # the last snapshot that was read
    reading: Reading | None = None  # of that snapshot
    agreed: int = 0  # snapshots in a row that said the same, and in which nothing moved
    moved_at: float | None = None  # the last snapshot in which something moved, since progress
    sets: tuple[WaitSet, ...] = ()  # of the snapshots in a row that found the same closed set
    proof: WaitSet | None = None  # what these prove together
    ended: LongestWaits = LongestWaits()
    # What there was to learn before its last wait: that may end with an error.
    settled: tuple[tuple[Heartbeat, ...], LongestWaits] = ((), LongestWaits())
    ranks: tuple[RankRecord, ...] = ()  # by the last snapshot


def begin(
    at: float, boot: float, learned: PhaseHistory | None = None, *, apart: bool = False
) -> Pulse:
    return Pulse(
        at=at,
        ahead=boot - at,
        progress=at,
        waited_from=at,
        earlier=learned or PhaseHistory(),
        apart=apart,
    )


def learn(pulse: Pulse, *, failed: bool = False) -> PhaseHistory:
    """Return what this attempt showed of its phases, for the journal to merge with the rest.

    The last wait of one that ``failed`` does not count: an error ended it, such as that of a rank
    whose peers were killed. The next hang would take a multiple of it to be found.
    """
    heartbeats, ended = pulse.settled if failed else (pulse.heartbeats, pulse.ended)
    return msgspec.structs.replace(
        from_heartbeats(heartbeats), device_wait=ended.device, locked_wait=ended.locked
    )


def judge(
    pulse: Pulse,
    tick: Tick,
    snapshots: tuple[Snapshot, ...],
    patience: Patience,
    waits: WaitKnowledge,
) -> tuple[Pulse, Verdict]:
    """Return the state of an attempt; ``snapshots`` are those since the last progress, in order."""
    pulse = _ticked(pulse, tick, patience)
    for snapshot in snapshots:
        seen_until = pulse.before.at if pulse.before else pulse.waited_from
        if snapshot.at > seen_until:
            pulse = _with_snapshot(pulse, snapshot, waits)
    allowed = budgets(pulse.heartbeats, pulse.ended, pulse.earlier, patience)
    return pulse, _verdict(pulse, tick, allowed, patience)


def _ticked(pulse: Pulse, tick: Tick, patience: Patience) -> Pulse:
    ahead = tick.boot - tick.at
    gap = tick.at - pulse.at
    away = ahead - pulse.ahead > SUSPENDED or gap > patience.tick_gap.total_seconds() or gap < 0
    mark: Mark = tuple(
        (beat.pid, beat.step, beat.beats, beat.phase, beat.since) for beat in tick.heartbeats
    )
    counted = tick.output.counters != pulse.counters
    trains = not finished(tick.heartbeats)
    steps_known = trains and any(beat.step for beat in trainers(tick.heartbeats))
    advanced = mark != pulse.mark or (counted and not steps_known)
    fresh = msgspec.structs.replace(
        pulse,
        at=tick.at,
        ahead=ahead,
        heartbeats=tick.heartbeats,
        mark=mark,
        counters=tick.output.counters,
    )
    if advanced:
        lost = _has_lost_rank(pulse, tick)
        ended = pulse.ended if away or lost else _ended(pulse, tick.at)
        settled = pulse.settled if lost else (pulse.heartbeats, pulse.ended)
        fresh = msgspec.structs.replace(fresh, progress=tick.at, ended=ended, settled=settled)
    elif counted:
        works = pulse.reading is not None and pulse.reading.works
        fresh = msgspec.structs.replace(
            fresh,
            printed_at=tick.at,
            worked_at=tick.at if works else pulse.worked_at,
            agreed=0,  # nothing is proven beside a counter that changes
            sets=(),
            proof=None,
        )
    return _forgotten(fresh, tick.at) if advanced or away else fresh


def _has_lost_rank(pulse: Pulse, tick: Tick) -> bool:
    """Whether a rank has ended, as when other hosts restart: its wait did not go on by itself."""
    going = {beat.pid for beat in tick.heartbeats if not beat.raised}
    before = [beat.pid for beat in trainers(pulse.heartbeats) if beat.rank is not None]
    return any(pid not in going for pid in before)


def _ended(pulse: Pulse, at: float) -> LongestWaits:
    """Remember the wait that just ended by what the snapshots said of it."""
    reading, ended, waited = pulse.reading, pulse.ended, at - pulse.waited_from
    if reading is None:
        return msgspec.structs.replace(ended, unexamined=max(ended.unexamined, waited))
    if reading.activity is Activity.WAITS_FOR_GPU:
        return msgspec.structs.replace(ended, device=max(ended.device, waited))
    if len(pulse.sets) > 1 and pulse.proof and pulse.proof.closed:  # one is not one moment
        seemed = at - pulse.sets[0].at
        return msgspec.structs.replace(ended, locked=max(ended.locked, seemed))
    return ended


def _forgotten(pulse: Pulse, at: float) -> Pulse:
    """Drop all suspicion."""
    return msgspec.structs.replace(
        pulse,
        waited_from=at,
        before=None,
        reading=None,
        agreed=0,
        moved_at=None,
        printed_at=None,
        worked_at=None,
        sets=(),
        proof=None,
        ranks=(),
    )


def withdrawn(pulse: Pulse, waited: float) -> Pulse:
    """Be more patient after a verdict that the last check did not confirm."""
    ended = msgspec.structs.replace(
        pulse.ended,
        locked=max(pulse.ended.locked, waited),
        device=max(pulse.ended.device, waited),
    )
    return msgspec.structs.replace(pulse, ended=ended)


def is_read(pulse: Pulse) -> bool:
    """Whether the last snapshot says anything about the proof."""
    return pulse.before is None or not pulse.sets or pulse.sets[-1].at == pulse.before.at


def interrupted(pulse: Pulse, at: float) -> Pulse:
    """Start over after a ^C that the script was sent: if it catches it, that may end its wait.

    From then on a person is known to wake it by signals, as far as the proof is concerned.
    """
    return msgspec.structs.replace(_forgotten(pulse, at), interrupted=True)


def occupied(pulse: Pulse, at: float) -> Pulse:
    """Leave out a time in which rocsteady itself was busy: that is no gap."""
    return msgspec.structs.replace(pulse, at=at)


def waits_for_gpu(pulse: Pulse) -> bool:
    """Return whether the last snapshot found a known wait for a device."""
    return pulse.reading is not None and pulse.reading.activity is Activity.WAITS_FOR_GPU


def worth_stopping(pulse: Pulse, seen: Snapshot, waits: WaitKnowledge) -> Collection[int]:
    """Return the processes whose native frames decide: everything else already says hung.

    A snapshot without them found nothing that moved since the one before, and no way out of the
    wait but in threads that are at something in native code.
    """
    if pulse.before is None:
        return ()
    found = wait_set(seen, pulse.heartbeats, waits, apart=pulse.apart)
    undecided = {member.key for member in found.members if is_in_native_code(member.thread)}
    others = {(each.pid, each.tid) for each in found.exits if each.way not in BY_SIGNAL}
    if others - undecided:
        return ()
    members = tuple(member for member in found.members if not member.bystander)
    if moved(pulse.before, seen, members, waits):
        return ()
    return {pid for pid in in_native_code(seen) if any(pid == each for each, _ in undecided)}


def _with_snapshot(pulse: Pulse, snapshot: Snapshot, waits: WaitKnowledge) -> Pulse:
    found = wait_set(snapshot, pulse.heartbeats, waits, apart=pulse.apart)
    reading = read(pulse.before, snapshot, found, pulse.heartbeats, waits)
    last = pulse.reading
    if last and last.activity in HELD and reading.activity not in HELD:
        pulse, last = _forgotten(pulse, snapshot.at), None
    sets = _sets(pulse.sets, found)
    agrees = last is not None and not reading.moves and reading.activity is last.activity
    return msgspec.structs.replace(
        pulse,
        before=snapshot,
        reading=reading,
        agreed=pulse.agreed + 1 if agrees and pulse.agreed else 1,
        moved_at=snapshot.at if reading.moves else pulse.moved_at,
        sets=sets,
        proof=prove(sets, alike=True),
        ranks=rank_records(snapshot, pulse.heartbeats, waits),
    )


def _sets(sets: tuple[WaitSet, ...], found: WaitSet) -> tuple[WaitSet, ...]:
    """Continue a row of snapshots that found the same closed set, or begin another.

    One that could not be read, as on a busy machine, neither confirms nor refutes the others.
    """
    unread = bool(found.exits) and all(each.way is WayOut.UNREAD for each in found.exits)
    if sets and sets[-1].closed and unread:
        return sets
    goes_on = bool(sets) and sets[-1].closed and found.closed and not any(changes(sets[-1], found))
    return (*sets, found)[-MAX_SETS:] if goes_on else (found,)


def _verdict(pulse: Pulse, tick: Tick, allowed: Budgets, patience: Patience) -> Verdict:
    quiet = max(0.0, tick.at - pulse.progress)
    waited = tick.at - pulse.waited_from
    if not tick.alive:
        return Verdict(condition=RunState.FINISHING, why="the command has ended", quiet=quiet)
    suspicious = waited >= allowed.suspect
    every = max(SNAPSHOT_EVERY, waited * SNAPSHOT_SHARE, tick.looking / LOOKING_SHARE)
    every = min(every, SNAPSHOT_AT_LEAST_EVERY)
    last_snapshot = pulse.before.at if pulse.before else None
    examine = suspicious and (last_snapshot is None or tick.at - last_snapshot >= every)
    over = finished(tick.heartbeats)
    proof = pulse.proof if suspicious else None
    limit = _limit(pulse, proof, allowed, patience)
    several = suspicious and len(pulse.ranks) > 1
    condition = _condition(pulse, limit, allowed, patience)
    if over and condition in (RunState.STARTING, RunState.HEALTHY):
        condition = RunState.FINISHING
    return Verdict(
        condition=condition,
        why=_why(pulse, quiet, allowed, condition, proof),
        quiet=quiet,
        starting=_is_starting(pulse, allowed),
        over=over,
        examine=examine,
        place=pulse.reading.place if pulse.reading and suspicious else "",
        culprit=pulse.reading.culprit if pulse.reading and suspicious else None,
        limit=limit,
        waits=proof,
        moves=pulse.reading is not None and pulse.reading.moves,
        apart=pulse.apart,
        blame=blame(pulse.ranks, world_size(pulse.heartbeats)) if several else None,
        ranks=pulse.ranks if suspicious else (),
    )


def _heard(pulse: Pulse) -> float:
    """Return when something was last heard: progress, or a counter of what was seen to work."""
    return max(pulse.waited_from, pulse.worked_at or pulse.waited_from)


def _is_starting(pulse: Pulse, allowed: Budgets) -> bool:
    return not allowed.started and bool(pulse.heartbeats or not pulse.counters)


def _condition(pulse: Pulse, limit: float | None, allowed: Budgets, patience: Patience) -> RunState:
    # Stopped goes first: a limit that ran out while somebody held the run says nothing about it.
    if pulse.reading and pulse.reading.activity in HELD:
        return RunState.STOPPED
    waited = pulse.at - _heard(pulse)
    if limit is not None and waited >= limit:
        return RunState.HUNG
    starting = _is_starting(pulse, allowed)
    say_slow = patience.start_after if starting else patience.say_slow_after
    slow_after = (say_slow if pulse.heartbeats else patience.say_slow_after).total_seconds()
    if waited >= max(slow_after, allowed.suspect):
        return RunState.SLOW
    return RunState.STARTING if starting else RunState.HEALTHY


def _limit(
    pulse: Pulse, proof: WaitSet | None, allowed: Budgets, patience: Patience
) -> float | None:
    """Return how long this may last, in seconds since the last progress; None: as long as it is.

    The order is from what forbids a short limit to what allows one. Whatever moves forbids it, even
    beside a closed set, for a snapshot is not one moment. A closed set comes before a wait for the
    GPU, which is itself a way out of every set. No limit is longer than the one without proof.
    """
    reading = pulse.reading
    unproven = _unproven(pulse, allowed, patience)
    if reading is None or unproven is None or reading.moves:
        return unproven
    if proof and _is_proven(pulse, proof, patience):
        woken = proof.handlers or pulse.interrupted
        least = patience.signal_after.total_seconds() if woken else 0.0
        return min(unproven, max(allowed.stuck, least))
    if reading.activity is Activity.WAITS_FOR_GPU:
        return _device_limit(pulse, unproven, allowed, patience)
    return unproven


def _unproven(pulse: Pulse, allowed: Budgets, patience: Patience) -> float | None:
    """Return the limit of whatever is not proven to be stuck."""
    reading = pulse.reading
    seen = bool(pulse.heartbeats) if reading is None else reading.visible
    if patience.hang_after is not None and (seen or pulse.counters):
        ever = allowed.started or pulse.counters
        least = 0.0 if ever else patience.start_after.total_seconds()
        return max(patience.hang_after.total_seconds(), least)
    if not seen:
        return None
    if reading is not None and reading.moves:
        return allowed.works
    if pulse.moved_at is None:
        return allowed.long
    # Work that came to a halt: the halt has the limit of what never moved, the whole that of work.
    return min(allowed.works, max(0.0, pulse.moved_at - _heard(pulse)) + allowed.long)


def _device_limit(pulse: Pulse, unproven: float, allowed: Budgets, patience: Patience) -> float:
    """Return the limit of a wait for the GPU, by whether there is a second sign."""
    sure = pulse.before is not None and bool(pulse.before.gpu_signs)
    if patience.hang_after is not None and not sure:
        return unproven
    if pulse.agreed < patience.samples:  # one snapshot in a device wait is an ordinary step
        return unproven
    # It counts from the last sign of life, of which a printed counter is one here: the script may
    # evaluate, and wait for the GPU at each print.
    moved_at = max(pulse.moved_at or 0.0, pulse.printed_at or 0.0, _heard(pulse))
    return min(unproven, (allowed.sure if sure else allowed.spin) + moved_at - _heard(pulse))


def _is_proven(pulse: Pulse, proof: WaitSet, patience: Patience) -> bool:
    """Whether enough snapshots in a row found one closed set.

    What has moved since the last progress was alive a moment ago, so that the set must then hold
    for as long as a hang without a known pace.
    """
    first, last = pulse.sets[0].at, pulse.sets[-1].at
    span = patience.sample_span if pulse.moved_at is None else patience.stuck_after
    return (
        proof.closed
        and len(pulse.sets) >= patience.samples
        and last - first >= span.total_seconds()
    )


def _why(
    pulse: Pulse, quiet: float, allowed: Budgets, condition: RunState, proof: WaitSet | None
) -> str:
    reading = pulse.reading
    if condition is RunState.HEALTHY and reading is None:
        return f"last progress {duration(quiet)} ago"
    if condition is RunState.STOPPED and reading:
        return reading.why
    seen = f"; {reading.why}" if reading else ""
    if reading and proof and reading.activity is Activity.WAITS_INSIDE and not reading.moves:
        seen += _way_out(proof, apart=pulse.apart)
    if waits_for_gpu(pulse) and pulse.before and pulse.before.gpu_signs:
        seen += f", and {pulse.before.gpu_signs[0]}"
    if finished(pulse.heartbeats):
        return f"the script has finished but has not exited for {duration(quiet)}{seen}"
    usual = f" (at most {duration(allowed.usual)} in this phase so far)" if allowed.usual else ""
    what = "step" if allowed.started else "first step"
    return f"no {what} for {duration(quiet)}{usual}{seen}"


def _way_out(proof: WaitSet, *, apart: bool) -> str:
    if proof.closed:
        ender = "only another host" if apart else "nothing"
        return f", and {ender} can end that wait"
    first = next(iter(proof.exits), None)
    return f", but thread {first.tid} of process {first.pid} {first.what}" if first else ""
