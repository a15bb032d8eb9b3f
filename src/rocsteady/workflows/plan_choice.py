"""``run --plan N``: the option of the kept plan that is taken, and those that it may fall to.

A run keeps the latter in its own folder, for when it is left and resumed.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from rocsteady.errors import RequestError
from rocsteady.host.atomic_file import write_whole
from rocsteady.job.stages import with_variant
from rocsteady.job.values import Job
from rocsteady.plan import Basis, Option, Plan
from rocsteady.redaction.redactor import shown_command
from rocsteady.supervisor.recovery import FallTo
from rocsteady.untrusted_file import read_regular
from rocsteady.workflows.saved_plan import kept, option_numbered

OPTIONS = "options.json"
OPTIONS_LIMIT = 1024 * 1024  # bytes


def planned(folder: Path, job: Job, number: int) -> tuple[Job, Option, tuple[FallTo, ...]]:
    """Return the job of an option of the last plan, the option, and what follows it in the plan."""
    plan = kept(folder)
    option = option_numbered(plan, number)
    if plan.command != job.command:
        same = f"rocsteady run --plan {number} -- {shown_command(plan.command)}"
        raise RequestError(
            f"the plan is for another command. Type: {same}, or plan again: rocsteady plan"
        )
    if option.basis is not Basis.TRIAL:
        instead = f": {option.do}" if option.do else ""
        raise RequestError(f"option {number} ({option.title}) cannot run here{instead}")
    taken = with_variant(job, option.variant) if option.variant else job
    return taken, option, options_after(plan, option.number)


def options_after(plan: Plan, number: int) -> tuple[FallTo, ...]:
    """Return the options after the one that is taken, of those that ran here with its command.

    Another variant is another model, bf16 has other numbers, and what only an estimate speaks for
    cannot be run here.
    """
    taken = next((option for option in plan.options if option.number == number), None)
    return tuple(
        FallTo(
            number=option.number,
            title=option.title,
            strategy=option.strategy,
            rate=option.pace.rate if option.pace else None,
        )
        for option in plan.options
        if option.number > number and option.basis is Basis.TRIAL
        if taken is not None and _is_same_job(option, taken)
    )


def _is_same_job(option: Option, taken: Option) -> bool:
    """Tell whether it trains the same model, with the same numbers or with the script's own."""
    same_model = (option.variant, option.command) == (taken.variant, taken.command)
    return same_model and option.strategy.precision in (None, taken.strategy.precision)


def keep_options(options: tuple[FallTo, ...], run: Path) -> None:
    """Write them into the folder of a run. Without a disk it can be run, and not resumed so."""
    with contextlib.suppress(OSError):
        write_whole(run / OPTIONS, msgspec.json.encode(options))


def kept_options(run: Path) -> tuple[FallTo, ...]:
    """Read them; none, if there are none or they cannot be read."""
    try:
        return msgspec.json.decode(
            read_regular(run / OPTIONS, OPTIONS_LIMIT), type=tuple[FallTo, ...]
        )
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()
