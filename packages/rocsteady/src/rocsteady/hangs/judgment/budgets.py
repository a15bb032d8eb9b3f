"""How long this run may be quiet, from patience and from what it showed so far. Seconds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from rocsteady.hangs.judgment.phase_history import stays_in_phase
from rocsteady.hangs.judgment.verdict import Patience
from rocsteady.hangs.values import Heartbeat, trainers
from rocsteady.model import Value
from rocsteady.store.values import PhaseHistory

SELDOM = frozenset({"starting", "checkpoint", "compile", "evaluate"})
EARLIER = timedelta(seconds=3.3)  # snapshots over 3 s must fit between suspicion and verdict
START_SHARE = 0.1  # of the time to a first step, before stacks are taken: that slows an import
BEATS_A_STEP = 20  # a script without a torch optimizer has beats but no steps


class Budgets(Value, frozen=True, kw_only=True):
    started: bool  # steps were made
    usual: float  # the longest usual stay in the present phase
    suspect: float
    stuck: float
    sure: float
    spin: float
    long: float
    works: float


class LongestWaits(Value, frozen=True, kw_only=True):
    """The longest waits of this run that ended, in seconds, by what the snapshots said of them."""

    unexamined: float = 0.0  # too short for a snapshot
    device: float = 0.0
    locked: float = 0.0


def budgets(
    heartbeats: tuple[Heartbeat, ...],
    ended: LongestWaits,
    earlier: PhaseHistory,
    patience: Patience,
) -> Budgets:
    """Work out what is allowed; of several processes, the most patient rule holds."""
    beats = trainers(heartbeats)
    stays = [stays_in_phase(beat) for beat in beats]
    stays += [earlier.of(beat.phase) for beat in beats]
    usual = max((stay.usual_longest() for stay in stays), default=0.0)
    longest = max((stay.longest for stay in stays), default=0.0)
    steps = min((_steps(beat) for beat in beats), default=0)
    seldom = steps < patience.steady_steps or any(beat.phase in SELDOM for beat in beats)
    least = patience.seldom_after if seldom else _steady(beats, patience)
    is_over = bool(beats) and all(beat.ended for beat in beats)
    if is_over:
        least = patience.exit_after
    suspect = min(patience.suspect_after, max(least - EARLIER, patience.steady_suspect_after))
    if not (steps or is_over):
        suspect = max(suspect, START_SHARE * patience.start_after)
    start = 0.0 if steps > 0 else patience.start_after.total_seconds()
    stuck = _between(least, patience.stuck_factor * usual, patience.stuck_at_most)
    locked = patience.locked_factor * max(ended.locked, earlier.locked_wait)
    device = max(ended.device, earlier.device_wait, min(usual, ended.unexamined))
    return Budgets(
        started=steps > 0,
        usual=usual,
        suspect=_between(suspect, patience.suspect_factor * usual, patience.suspect_at_most),
        stuck=max(start, stuck, locked),
        sure=max(start, patience.sure_after.total_seconds()),
        spin=max(start, patience.spin_after.total_seconds(), patience.spin_factor * device),
        long=max(patience.long_after.total_seconds(), patience.long_factor * longest),
        works=max(patience.works_after.total_seconds(), patience.long_factor * longest),
    )


def _steady(beats: Iterable[Heartbeat], patience: Patience) -> timedelta:
    """Return the least for a closed set while steps are made: sooner, the shorter steps are."""
    step = max((_mean_step(beat) for beat in beats), default=0.0)
    wanted = timedelta(seconds=patience.steady_factor * step)
    return min(max(patience.steady_stuck_after, wanted), patience.stuck_after)


def _mean_step(beat: Heartbeat) -> float:
    spent = sum(seconds for phase, seconds in beat.seconds_in.items() if phase not in SELDOM)
    return spent / max(beat.step, 1)


def _between(least: timedelta, wanted: float, most: timedelta) -> float:
    return max(least.total_seconds(), min(wanted, most.total_seconds()))


def _steps(heartbeat: Heartbeat) -> int:
    return max(heartbeat.step, heartbeat.beats // BEATS_A_STEP)
