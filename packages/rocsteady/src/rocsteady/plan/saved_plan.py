"""The last plan of a folder, in the user's state folder, and the option that a run follows."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace
from rocsteady_train.untrusted_file import read_regular

from rocsteady.errors import RequestError, RocsteadyError
from rocsteady.plan.values import PLAN_VERSION, Basis, ChainLink, Option, Plan
from rocsteady.probe.sandbox_run import name_for
from rocsteady.run.job import FILE as JOB_FILE
from rocsteady.run.job.stages import with_variant
from rocsteady.run.job.values import Job
from rocsteady.run.options import Fallback, StopRule
from rocsteady.store.redaction import shown_command
from rocsteady.store.user_folders import state_folder
from rocsteady.system.atomic_file import write_whole
from rocsteady.typed_values import decode

FILE = "plan.json"
PLAN_LIMIT = 16 * 1024 * 1024  # bytes


def save_plan(plan: Plan, folder: Path) -> str:
    """Write it down; returns why it could not be, "" if it was."""
    path = _path(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, msgspec.json.encode(plan))
    except OSError as error:
        return f"The plan could not be saved ({error.strerror}), so run --plan cannot use it."
    return ""


def has_trials(folder: Path) -> bool:
    """Whether the last plan measured something, which one without trials would replace."""
    try:
        return load_plan(folder).trials > 0
    except RocsteadyError:
        return False


def load_plan(folder: Path, command: tuple[str, ...] = ()) -> Plan:
    words = command or (() if (folder / JOB_FILE).exists() else ("python", "train.py"))
    typed = f" -- {shown_command(words)}" if words else ""
    none = f"no plan for this folder yet. Type: rocsteady plan{typed}"
    try:
        content = read_regular(_path(folder), PLAN_LIMIT)
    except FileNotFoundError:
        raise RequestError(none) from None
    except OSError as error:
        raise RocsteadyError(f"the plan cannot be read: {error.strerror}") from None
    try:
        plan = decode(content, type=Plan)
    except msgspec.MsgspecError:
        raise RocsteadyError(f"the plan cannot be read; {none}") from None
    if plan.version != PLAN_VERSION:
        raise RocsteadyError(f"the plan was made by another version of rocsteady; {none}")
    return plan


def option_numbered(plan: Plan, number: int) -> Option:
    for option in plan.options:
        if option.number == number:
            return option
    count = len(plan.options)
    there = {0: "none", 1: "1"}.get(count, f"1 to {count}")
    raise RequestError(f"the plan has no option {number}; it has {there}")


def command_of(folder: Path, typed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that was typed, or the plan's own where no job file has another."""
    plan = load_plan(folder, typed)
    return typed if typed or (folder / JOB_FILE).exists() else plan.command


def home(folder: Path) -> Path:
    return state_folder() / "plans" / name_for(folder)


def _path(folder: Path) -> Path:
    return home(folder) / FILE


def planned(folder: Path, job: Job, number: int) -> tuple[Job, Option, tuple[Fallback, ...]]:
    """Return the job of an option of the last plan, the option, and what follows it in the plan."""
    plan = load_plan(folder, job.command)
    option = option_numbered(plan, number)
    if plan.command != job.command:
        same = f"rocsteady run --plan {number} -- {shown_command(plan.command)}"
        raise RequestError(
            f"the plan is for another command. Type: {same}, or plan again: rocsteady plan"
        )
    if option.basis is not Basis.TRIAL:  # the first link of its chain that needs nobody
        links = plan.chain.links if plan.chain and plan.chain.links[0].option == number else ()
        here = next((link.option for link in links if not link.by_hand), None)
        if here is None:
            instead = f": {option.do}" if option.do else ""
            raise RequestError(f"option {number} ({option.title}) cannot run here{instead}")
        option = option_numbered(plan, here)
    own = option.variant in job.variants  # else the plan made it, and its command is the plan's
    taken = with_variant(job, option.variant) if own else job
    if option.variant and not own:
        taken = replace(job, command=option.command)
    return taken, option, _fallbacks(plan, option.number)


def stop_of(folder: Path, number: int) -> StopRule | None:
    """Return when a run leaves an option, if it is the first of the plan's chain that runs here."""
    links = _runnable(load_plan(folder))
    return links[0].stop if len(links) > 1 and links[0].option == number else None


def _runnable(plan: Plan) -> list[ChainLink]:
    """Return the links that a run can carry out; to the others a person has to go."""
    return [link for link in plan.chain.links if not link.by_hand] if plan.chain else []


def _fallbacks(plan: Plan, number: int) -> tuple[Fallback, ...]:
    """Return what follows an option: the rest of the chain that it begins, then the others."""
    after = options_after(plan, number)
    links = _runnable(plan)
    if not links or links[0].option != number:
        return after
    rules = {link.option: link.stop if link is not links[-1] else None for link in links[1:]}
    rest = {
        option.number: _fallback(option, rules[option.number])
        for option in plan.options
        if option.number in rules
    }
    return (*(rest[each] for each in rules), *(it for it in after if it.number not in rules))


def _fallback(option: Option, stop: StopRule | None = None) -> Fallback:
    return Fallback(
        number=option.number,
        title=option.title,
        strategy=option.strategy,
        rate=option.pace.rate if option.pace else None,
        stop=stop,
    )


def options_after(plan: Plan, number: int) -> tuple[Fallback, ...]:
    """Return the options after the one that is taken, of those that ran here with its command.

    Another variant is another model, bf16 has other numbers, and what only an estimate speaks for
    cannot be run here.
    """
    taken = next((option for option in plan.options if option.number == number), None)
    return tuple(
        _fallback(option)
        for option in plan.options
        if option.number > number and option.basis is Basis.TRIAL
        if taken is not None and option.is_same_job(taken)
    )
