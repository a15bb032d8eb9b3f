"""Which rank holds up the others, judged by what each of them does at the same moment.

In a collective hang every rank waits. The ranks are grouped by what they wait for, by step, by
place and by phase, in this order. The first two have a direction: the others wait for those that do
something else or are behind, even if those are half of them. The rest only show who differs, so
that the smaller part must be less than half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from rocsteady.doctor.knowledge.waits import WaitKnowledge
from rocsteady.hangs.proof.stack_frames import (
    below_users_code,
    in_collective,
    is_of,
    place_of,
)
from rocsteady.hangs.values import Heartbeat, Snapshot, ThreadSeen, Wait, trainers
from rocsteady.model import Blame, RankRecord, Sign, WaitsFor
from rocsteady.wording import plural

MAX_NAMED = 16  # ranks that a judgment keeps
MAX_WRITTEN = 4  # ranks that a sentence names one by one
LOADER = "data/dataloader.py"
# Code of PyTorch that may be in a collective which only the native stack would show.
MAY_BE_COLLECTIVE = ("autograd/graph.py", "autograd/__init__.py", "parallel/distributed.py")


IDLE = (WaitsFor.RANKS, WaitsFor.GPU, WaitsFor.MAYBE_RANKS)
BY_CALL = {
    Wait.NOTHING: WaitsFor.NOTHING,
    Wait.LOCK: WaitsFor.LOCK,
    Wait.TREE: WaitsFor.PROCESS,
    Wait.CHILD: WaitsFor.PROCESS,
    Wait.WORLD: WaitsFor.WORLD,
    Wait.DISK: WaitsFor.WORLD,
    Wait.SLEEP: WaitsFor.TIME,
    Wait.DEVICE: WaitsFor.GPU,
    Wait.STOPPED: WaitsFor.STOPPED,
    Wait.TRACED: WaitsFor.STOPPED,
}


def blame(records: Iterable[RankRecord], world: int = 0) -> Blame:
    """Name the ranks that hold up the others; of a ``world`` of more, the rest is not compared."""
    known = sorted(records, key=lambda record: record.rank)
    found = _judged(known)
    missing = world - found.compared
    if missing <= 0:
        return found
    others = f"{plural(missing, 'rank')} of other hosts"
    waits = found.sign is Sign.NONE and all(each.waits_for in IDLE for each in known)
    return replace(
        found,
        why=f"{found.why}; {others} could not be compared",
        unclear=found.unclear or waits,
    )


def _judged(known: list[RankRecord]) -> Blame:
    if len(known) < 2:  # noqa: PLR2004 - one has nobody to be compared with
        return _nobody(known, "there is only one rank")
    for judge in (_by_silence, _by_wait, _by_step, *_DIFFERENCES):
        found = judge(known)
        if found is not None:
            return found
    first = known[0]
    what = f", waiting for {first.waits_for.value}" if first.waits_for in IDLE[:2] else ""
    return _nobody(known, f"all {len(known):,} ranks are in step {first.step:,}{_at(known)}{what}")


def _by_silence(known: list[RankRecord]) -> Blame | None:
    silent = [each for each in known if not each.heard]
    if not silent:
        return None
    if len(silent) * 2 > len(known):
        return _nobody(known, f"{_part(silent, known)} did not answer")
    return _named(Sign.SILENT, known, silent, ("did not answer",) * 2)


def _by_wait(known: list[RankRecord]) -> Blame | None:
    """Find those that do not wait for the others, if others wait."""
    busy = [each for each in known if each.waits_for not in (*IDLE, WaitsFor.UNKNOWN)]
    idle = [each for each in known if each.waits_for in IDLE]
    if not busy:  # a rank in a collective on the host does not wait for one on a GPU
        busy = [each for each in known if each.waits_for is WaitsFor.GPU]
        idle = [each for each in known if each.waits_for is WaitsFor.RANKS]
    if not busy or not idle:
        return None
    doing = Counter(each.waits_for for each in busy).most_common(1)[0][0]
    one, many = _DOES[doing]
    if len(busy) * 2 > len(known):
        return _nobody(known, f"{_part(busy, known)} {many}{_at(busy)}")
    waiting = f", and {plural(len(idle), 'rank')} {'waits' if len(idle) == 1 else 'wait'} for"
    at = _at(busy)
    does = f"{one}{at}{waiting} it", f"{many}{at}{waiting} them"
    return _named(Sign.WAIT, known, busy, does, (_one_place(busy),))


def _by_step(known: list[RankRecord]) -> Blame | None:
    """Name those in the lowest step, unless most are in it: then nobody waits for the rest."""
    lowest = min(each.step for each in known)
    behind = [each for each in known if each.step == lowest]
    if len(behind) * 2 > len(known):
        return None
    step, number = Counter(each.step for each in known if each.step != lowest).most_common(1)[0]
    rest = f", and {plural(number, 'rank')} reached step {step:,}"
    clause = f"reached step {lowest:,}{_at(behind)}{rest}"
    return _named(Sign.STEP, known, behind, (clause, clause), (_one_place(behind),))


def _by_difference(
    sign: Sign, of: Callable[[RankRecord], str], does: str
) -> Callable[[list[RankRecord]], Blame | None]:
    """Return what names those that differ from most others."""

    def judge(known: list[RankRecord]) -> Blame | None:
        groups = Counter(map(of, known))
        (usual, most), *_ = groups.most_common(1)
        if len(groups) == 1 or "" in groups:
            return None
        if most * 2 <= len(known):
            parts = [f"{_group(known, of, what)} {does} {what}" for what in groups]
            more = len(parts) - MAX_WRITTEN
            rest = f" and {plural(more, 'other group')}" if more > 0 else ""
            found = _nobody(known, ", ".join(parts[:MAX_WRITTEN]) + rest)
            return replace(found, unclear=True) if sign is Sign.PLACE else found
        apart = [each for each in known if of(each) != usual]
        other = Counter(map(of, apart)).most_common(1)[0][0]
        clause = f"{does} {other}, and {plural(most, 'rank')} {does} {usual}"
        places = (other, usual) if sign is Sign.PLACE else ()
        return _named(sign, known, apart, (clause, clause), places)

    return judge


def _group(known: list[RankRecord], of: Callable[[RankRecord], str], what: str) -> str:
    group = [each for each in known if of(each) == what]
    return _name(group[0]) if len(group) == 1 else plural(len(group), "rank")


_DIFFERENCES = (
    _by_difference(Sign.PLACE, lambda each: each.place, "stopped at"),
    _by_difference(Sign.PHASE, lambda each: each.phase, "stopped in phase"),
)
_DOES = {  # of one rank, and of several
    WaitsFor.GPU: ("is waiting for its GPU", "are waiting for their GPUs"),
    WaitsFor.NOTHING: ("is running", "are running"),
    WaitsFor.LOCK: ("is waiting for a lock", "are waiting for locks"),
    WaitsFor.LOADER: ("is waiting for its data loader", "are waiting for their data loaders"),
    WaitsFor.PROCESS: ("is waiting for another process", "are waiting for other processes"),
    WaitsFor.WORLD: (
        "is waiting for a file or the network",
        "are waiting for files or the network",
    ),
    WaitsFor.TIME: ("is sleeping", "are sleeping"),
    WaitsFor.STOPPED: ("is stopped", "are stopped"),
    WaitsFor.ENDED: ("has finished its script", "have finished their scripts"),
}


def _nobody(known: list[RankRecord], why: str) -> Blame:
    return Blame(sign=Sign.NONE, why=f"no rank stands out: {why}", compared=len(known))


def _named(
    sign: Sign,
    known: list[RankRecord],
    apart: list[RankRecord],
    does: tuple[str, str],  # one rank, and several
    places: tuple[str, ...] = (),
) -> Blame:
    return Blame(
        sign=sign,
        why=f"{_names(apart, known)} {does[len(apart) > 1]}",
        ranks=tuple(apart[:MAX_NAMED]),
        number=len(apart),
        compared=len(known),
        places=places,
    )


def _names(apart: list[RankRecord], known: list[RankRecord]) -> str:
    """Name ranks: one by one with host and GPU, a whole host by its name."""
    hosts = {each.host for each in apart}
    if len(apart) > 1 and len(hosts) == 1:
        (host,) = hosts
        if host and len(apart) == sum(each.host == host for each in known) < len(known):
            return f"all {len(apart):,} ranks of host {host}"
    named = [_name(each) for each in apart[:MAX_WRITTEN]]
    more = len(apart) - MAX_WRITTEN
    if more > 0:
        named.append(plural(more, "other rank"))
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _name(record: RankRecord) -> str:
    where = [f"host {record.host}"] if record.host else []
    where += [f"GPU {record.gpu}"] if record.gpu else []
    return f"rank {record.rank:,}" + (f" ({', '.join(where)})" if where else "")


def _part(some: list[RankRecord], known: list[RankRecord]) -> str:
    return f"{len(some):,} of {len(known):,} ranks"


def _at(records: list[RankRecord]) -> str:
    place = _one_place(records)
    return f" at {place}" if place else ""


def _one_place(records: list[RankRecord]) -> str:
    """Return the line that these are at, if it is one."""
    places = {each.place for each in records}
    return next(iter(places)) if len(places) == 1 else ""


# What each rank of this machine does, from its heartbeat and one snapshot.


def rank_records(
    snapshot: Snapshot,
    heartbeats: Iterable[Heartbeat],
    known: WaitKnowledge,
    *,
    gpus: Mapping[int, str] | None = None,
) -> tuple[RankRecord, ...]:
    """Return a record for each rank; ``gpus`` are by process."""
    threads = {
        (process.pid, thread.tid): thread
        for process in snapshot.processes
        for thread in process.threads
    }
    stopped = {
        process.pid
        for process in snapshot.processes
        if any(thread.wait in (Wait.STOPPED, Wait.TRACED) for thread in process.threads)
    }
    records = []
    for beat in _one_a_rank(tuple(heartbeats)):
        thread = threads.get((beat.pid, beat.thread))
        waits = WaitsFor.STOPPED if beat.pid in stopped else _waits_for(beat, thread, known)
        records.append(
            RankRecord(
                rank=beat.rank or 0,
                gpu=(gpus or {}).get(beat.pid, ""),
                pid=beat.pid,
                step=beat.base + beat.step,
                phase=beat.phase,
                place=place_of(thread.frames) if thread and thread.frames else "",
                waits_for=waits,
            )
        )
    return tuple(records)


def _one_a_rank(heartbeats: tuple[Heartbeat, ...]) -> list[Heartbeat]:
    """Return one heartbeat a rank: of those that train, else of one whose script is done."""
    told = [beat for beat in heartbeats if beat.rank is not None]
    by_rank = {beat.rank: beat for beat in told if beat.ended}
    by_rank |= {beat.rank: beat for beat in trainers(tuple(told)) if not beat.ended}
    return [by_rank[rank] for rank in sorted(by_rank, key=lambda rank: rank or 0)]


def _waits_for(beat: Heartbeat, thread: ThreadSeen | None, known: WaitKnowledge) -> WaitsFor:
    if beat.ended or thread is None:
        return WaitsFor.ENDED if beat.ended else WaitsFor.UNKNOWN
    native = thread.native or ()
    if known.device(native) is not None:
        return WaitsFor.GPU
    if thread.frames is None:
        return WaitsFor.UNKNOWN
    if in_collective(thread, known):
        return WaitsFor.RANKS
    below = below_users_code(thread.frames)
    if any(is_of(frame, LOADER) for frame in below):
        return WaitsFor.LOADER
    waits = BY_CALL.get(thread.wait, WaitsFor.UNKNOWN)
    torchs = any(is_of(frame, *MAY_BE_COLLECTIVE) for frame in below)
    return WaitsFor.MAYBE_RANKS if torchs and waits is not WaitsFor.NOTHING else waits
