"""The last plan of a folder, in the user's state folder: what ``run --plan`` follows."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rocsteady.errors import RequestError, RocsteadyError
from rocsteady.host.atomic_file import write_whole
from rocsteady.job import FILE as JOB_FILE
from rocsteady.plan import PLAN_VERSION, Option, Plan
from rocsteady.untrusted_file import read_regular
from rocsteady.user_folders import state_folder
from rocsteady.workflows.sandbox_run import name_for

FILE = "plan.json"
PLAN_LIMIT = 16 * 1024 * 1024  # bytes


def keep(plan: Plan, folder: Path) -> str:
    """Write it down; returns why it could not be, "" if it was."""
    path = _path(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, msgspec.json.encode(plan))
    except OSError as error:
        return f"The plan could not be saved ({error.strerror}), so run --plan cannot use it."
    return ""


def kept(folder: Path) -> Plan:
    """Read it, or say what to do."""
    none = "no plan for this folder yet. Type: rocsteady plan"
    try:
        content = read_regular(_path(folder), PLAN_LIMIT)
    except FileNotFoundError:
        raise RequestError(none) from None
    except OSError as error:
        raise RocsteadyError(f"the plan cannot be read: {error.strerror}") from None
    try:
        plan = msgspec.json.decode(content, type=Plan)
    except msgspec.MsgspecError:
        raise RocsteadyError(f"the plan cannot be read; {none}") from None
    if plan.version != PLAN_VERSION:
        raise RocsteadyError(f"the plan was made by another version of rocsteady; {none}")
    return plan


def option_numbered(plan: Plan, number: int) -> Option:
    """Return the option that a person has typed the number of."""
    for option in plan.options:
        if option.number == number:
            return option
    raise RequestError(f"the plan has no option {number}; it has {_numbers(plan)}")


def command_of(folder: Path, typed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that was typed, or the plan's own where no job file has another."""
    plan = kept(folder)
    return typed if typed or (folder / JOB_FILE).exists() else plan.command


def home(folder: Path) -> Path:
    """Return where what belongs to a folder's plan is kept."""
    return state_folder() / "plans" / name_for(folder)


def _path(folder: Path) -> Path:
    return home(folder) / FILE


def _numbers(plan: Plan) -> str:
    if not plan.options:
        return "none"
    return "1" if len(plan.options) == 1 else f"1 to {len(plan.options)}"
