"""Whether a job over several hosts hangs: each tells its part, and the leader judges all parts.

A host tells it once nothing moves on it. docs/decisions/0031 has the table of situations.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from rocsteady.hangs.judgment.blame import blame
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.proof.wait_set import never_goes_on
from rocsteady.hangs.values import Heartbeat, ThreadSeen, Wait, WayOut, trainers
from rocsteady.model import Blame, RankRecord, RunState, Value
from rocsteady.run.hosts.messages import Text

STILL_WITH_DEAD_RANK = 60.0  # seconds that hosts without proof must not move, beside a dead rank
STILL_WITHOUT = 300.0  # the same where all ranks that could be read wait for others
SERVING = ("gloo_tcp_loop", "pt_tcpstore", "pt_tcpstore_uv")  # threads of torch that wait for peers


class Part(Enum):
    """What a host can say about its ranks, none of which moves."""

    PROVEN = "proven"  # stuck, if the ranks of other hosts are
    ABSTAINS = "abstains"  # they stand still, and nobody could read why
    UNREACHABLE = "unreachable"  # they wait, and the kernel still sends data to a silent peer


class HostPart(Value, frozen=True, kw_only=True):
    host: int = 0
    node: Text = ""  # the scheduler's name of it; "": of a version that does not tell
    part: Part
    why: Text = ""  # it abstains; a clause
    world: int = 0  # how many ranks the job has
    ranks: tuple[int, ...] = ()  # that train here; none where nobody could tell
    records: tuple[RankRecord, ...] = ()  # of those that a snapshot has, to find the one to blame
    never: tuple[int, ...] = ()  # ranks that cannot go on, whatever other hosts do
    confirmed: int = 0  # the number of the last question to which the proof was repeated


class JobVerdict(Value, frozen=True, kw_only=True):
    """Whether a job hangs, and which hosts could not help to find out."""

    hangs: bool
    abstained: tuple[HostPart, ...] = ()


def alone(heartbeats: tuple[Heartbeat, ...]) -> tuple[Heartbeat, ...]:
    """Return heartbeats as if the ranks of this host were all: a verdict is then conditional."""
    here = len({beat.rank for beat in heartbeats if beat.rank is not None})
    return tuple(
        msgspec.structs.replace(beat, world=here) if (beat.world or 1) > here > 0 else beat
        for beat in heartbeats
    )


def host_part(heartbeats: tuple[Heartbeat, ...], verdict: Verdict) -> HostPart | None:
    """Return this host's part; None: a rank moves, or may. ``heartbeats`` tell the whole world."""
    part = _part(verdict)
    if part is None:
        return None
    beats = [beat for beat in trainers(heartbeats) if beat.rank is not None]
    never = never_goes_on(verdict.waits) if verdict.waits and part is Part.PROVEN else set()
    return HostPart(
        part=part,
        why="its processes cannot be read" if part is Part.ABSTAINS else "",
        world=max([len(beats), *(beat.world or 1 for beat in heartbeats)]),
        ranks=tuple(sorted(beat.rank or 0 for beat in beats)),
        records=verdict.ranks,
        never=tuple(sorted(beat.rank or 0 for beat in beats if beat.pid in never)),
    )


def _part(verdict: Verdict) -> Part | None:
    if verdict.condition is RunState.HUNG:
        return Part.PROVEN
    if verdict.condition is not RunState.SLOW or verdict.moves or verdict.waits is None:
        return None
    ways = {each.way for each in verdict.waits.exits}
    if ways == {WayOut.NETWORK}:
        return Part.UNREACHABLE
    threads = [
        thread
        for process in {
            member.process.pid: member.process for member in verdict.waits.members
        }.values()
        for thread in process.threads
    ]
    in_locks = all(_is_in_lock(each) or each.name in SERVING for each in threads)
    return Part.ABSTAINS if ways == {WayOut.UNREAD} and in_locks else None


def _is_in_lock(thread: ThreadSeen) -> bool:
    """Whether a thread waits for a lock, also for long: torch's collectives give up after 30 min.

    That is a sleep where the timeout can be read. Nobody could end a plain one: it has no pids.
    """
    timed = thread.wait is Wait.SLEEP and thread.blocked is not None and thread.blocked.pids
    return thread.wait is Wait.LOCK or bool(timed)


def job_verdict(parts: Sequence[HostPart], *, hosts: int, asked: int, still: float) -> JobVerdict:
    """Judge a job by the parts of its hosts. One that is missing has a rank that moves, or may.

    ``asked`` is the number of the question that followed the last part. A proof that was repeated
    since then held at the moment of the question, on every host that repeated it. For ``still``
    seconds since that moment no host has taken its part back.
    """
    proven = [each for each in parts if each.part is Part.PROVEN and each.confirmed == asked]
    abstained = tuple(each for each in parts if each not in proven)
    told = sorted(rank for each in parts for rank in each.ranks)
    world = max((each.world for each in parts), default=0)
    all_told = told == list(range(world)) or any(not each.ranks for each in abstained)
    if len(parts) < hosts or not proven or not all_told:
        return JobVerdict(hangs=False)
    if any(each.part is Part.UNREACHABLE for each in parts):
        return JobVerdict(hangs=False)
    if not abstained:
        return JobVerdict(hangs=True)
    if any(each.never for each in proven):
        enough = still >= STILL_WITH_DEAD_RANK
    else:
        enough = still >= STILL_WITHOUT and 2 * len(proven) > hosts
    return JobVerdict(hangs=enough, abstained=abstained)


def job_blame(hosts: Sequence[HostPart]) -> Blame:
    """Say which rank of all hosts holds up the others."""
    records = [
        msgspec.structs.replace(record, host=str(host.host))
        for host in hosts
        for record in host.records
    ]
    return blame(records, max((host.world for host in hosts), default=0))
