"""``run --plan N``: the way of the kept plan that is taken, and those that it may fall to.

A run keeps the latter in its own folder, for when it is left and resumed.
"""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

import click
import msgspec

from rocsteady.host.files import write_whole
from rocsteady.job.stages import with_variant
from rocsteady.job.values import Job
from rocsteady.plan import Basis, Plan, Way
from rocsteady.supervisor.recovery import FallTo
from rocsteady.untrusted_file import read_regular
from rocsteady.workflows.saved_plan import kept, way_of

WAYS = "ways.json"
WAYS_LIMIT = 1024 * 1024  # bytes


def planned(folder: Path, job: Job, number: int) -> tuple[Job, Way, tuple[FallTo, ...]]:
    """Return the job of a way of the last plan, the way, and what follows it in the plan."""
    plan = kept(folder)
    way = way_of(plan, number)
    if plan.command != job.command:
        same = f"rocsteady run --plan {number} -- {shlex.join(plan.command)}"
        raise click.UsageError(
            f"the plan is for another command. Type: {same}, or plan again: rocsteady plan"
        )
    if way.basis is not Basis.TRIAL:
        instead = f": {way.do}" if way.do else ""
        raise click.UsageError(f"option {number} ({way.title}) cannot run here{instead}")
    taken = with_variant(job, way.variant) if way.variant else job
    return taken, way, ways_after(plan, way.number)


def ways_after(plan: Plan, number: int) -> tuple[FallTo, ...]:
    """Return the ways after the one that is taken, of those that ran here with its command.

    Another variant is another model, bf16 has other numbers, and what only an estimate speaks for
    cannot be run here.
    """
    taken = next((way for way in plan.ways if way.number == number), None)
    return tuple(
        FallTo(
            number=way.number,
            title=way.title,
            strategy=way.strategy,
            rate=way.pace.rate if way.pace else None,
        )
        for way in plan.ways
        if way.number > number and way.basis is Basis.TRIAL
        if taken is not None and _is_same_job(way, taken)
    )


def _is_same_job(way: Way, taken: Way) -> bool:
    """Tell whether it trains the same model, with the same numbers or with the script's own."""
    same_model = (way.variant, way.command) == (taken.variant, taken.command)
    numbers = way.strategy.precision, way.strategy.autocast
    own = None, None
    return same_model and numbers in (own, (taken.strategy.precision, taken.strategy.autocast))


def keep_ways(ways: tuple[FallTo, ...], run: Path) -> None:
    """Write them into the folder of a run. Without a disk it can be run, and not resumed so."""
    with contextlib.suppress(OSError):
        write_whole(run / WAYS, msgspec.json.encode(ways))


def kept_ways(run: Path) -> tuple[FallTo, ...]:
    """Read them; none, if there are none or they cannot be read."""
    try:
        return msgspec.json.decode(read_regular(run / WAYS, WAYS_LIMIT), type=tuple[FallTo, ...])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()
