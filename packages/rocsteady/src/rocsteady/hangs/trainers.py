"""Which of the processes that have a heartbeat page train, and whether all ranks are here."""

from __future__ import annotations

from collections.abc import Iterable

from rocsteady.hangs.values import Heartbeat


def trainers(heartbeats: tuple[Heartbeat, ...]) -> tuple[Heartbeat, ...]:
    """Return the heartbeats of training processes: of each rank, those that have beaten.

    Excludes launchers and finished scripts. If all scripts are finished, those whose process has
    not exited take their place.
    """
    going = [beat for beat in heartbeats if not beat.ended]
    beating = [beat for beat in going if beat.beats or beat.step]
    ranks = {beat.rank for beat in beating}
    silent = [beat for beat in going if beat.rank is not None and beat.rank not in ranks]
    return tuple(beating + silent or going or heartbeats)


def finished(heartbeats: tuple[Heartbeat, ...]) -> bool:
    """Whether the code of all that trained is done; a launcher may still wait for them."""
    trained = [beat for beat in heartbeats if beat.beats or beat.step or beat.rank is not None]
    return bool(heartbeats) and all(beat.ended for beat in trained or heartbeats)


def ranks_elsewhere(heartbeats: tuple[Heartbeat, ...]) -> bool:
    """Whether ranks train that have no page here, such as those of another machine."""
    ranks = {beat.rank for beat in heartbeats if beat.rank is not None}
    return any((beat.world or 1) > max(1, len(ranks)) for beat in heartbeats)


def world_size(heartbeats: Iterable[Heartbeat]) -> int:
    """Return how many ranks there are on all hosts, as they tell; 0: not known."""
    return max((beat.world or 0 for beat in heartbeats), default=0)
