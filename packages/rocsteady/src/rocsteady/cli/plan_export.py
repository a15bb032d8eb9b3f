"""``rocsteady plan --export``: files that do an option of the plan elsewhere."""

from __future__ import annotations

import os
import time
from datetime import date
from pathlib import Path

import click
from msgspec.structs import replace

from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.facts import visible_to_a_run
from rocsteady.doctor.knowledge.gpu_names import card_name
from rocsteady.doctor.knowledge.gpu_rental import Offer, load_offers
from rocsteady.doctor.machine.machine import Machine, examined
from rocsteady.errors import RocsteadyError
from rocsteady.failures.difference import describe_changes
from rocsteady.model import Strategy
from rocsteady.plan.candidates import CPU
from rocsteady.plan.estimates import CLOUD
from rocsteady.plan.exports.export import FILE as PINS
from rocsteady.plan.exports.export import Export, outside, pins, ranks_option, ranks_per_host
from rocsteady.plan.exports.targets import TARGETS
from rocsteady.plan.exports.wheels import FOLDER, wheels
from rocsteady.plan.saved_plan import load_plan, option_numbered
from rocsteady.plan.values import Option, Plan
from rocsteady.run.job.values import Job
from rocsteady.screens.plan import over_budget
from rocsteady.screens.screen import show, tell
from rocsteady.store.forecast import due
from rocsteady.store.redaction import shown_command
from rocsteady.wording import plural

AT_MOST = 1.25  # times the price that the plan knows may be paid an hour
REQUIREMENTS = "requirements.txt"


def write_files(  # noqa: PLR0913 - one argument an option
    kind: str,
    number: int | None,
    folder: Path,
    job: Job,
    planned: tuple[Machine | None, Plan | None] = (None, None),
    *,
    force: bool,
) -> None:
    """Write them into the folder and name them; nothing is overwritten unasked.

    ``planned``: the recorded machine that they are for, and its plan; None: this one, the last.
    """
    machine, plan = planned
    here = examined(doctors_knowledge(), job.command)
    option = _option(kind, number, folder, plan)
    export = _export(option, machine or here, folder, job)
    if machine and os.name != "nt":  # the project lies here, and not on that machine
        export = replace(export, folder="")
    if left_here := outside(export.command, folder):
        names = ", ".join(left_here)
        tell(f"rocsteady: outside this folder, so not included: {names}. Copy it here first.")
    python = None if export.requirements else here.python
    pinned = pins(folder, python.site_packages) if python else ""
    if pinned:
        export = replace(export, requirements=PINS)
    files = TARGETS[kind](export) | ({PINS: pinned} if pinned else {})
    there = [name for name in files if os.path.lexists(folder / name)]
    if there and not force:
        raise click.UsageError(f"{', '.join(there)}: already exists; use --force to overwrite")
    for name, text in files.items():
        try:
            if (folder / name).is_symlink():  # it is replaced, and not followed
                (folder / name).unlink()
            (folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise click.UsageError(f"{name} cannot be written: {error.strerror}") from None
        show(f"Wrote {name}{f' for {export.option}' * bool(export.option)}.\n")
    _write_wheels(folder / FOLDER)


def _write_wheels(target: Path) -> None:
    """Put rocsteady itself beside the files, so that they install it from there."""
    if target.is_symlink():
        raise click.UsageError(f"{target} cannot be written: it is a link")
    try:
        target.mkdir(exist_ok=True)
        for old in target.glob("*.whl"):
            old.unlink()
        for name, content in wheels().items():
            (target / name).write_bytes(content)
    except OSError as error:
        raise click.UsageError(f"{target} cannot be written: {error.strerror}") from None
    show(f"Wrote {target.name}/.\n")


def _export(option: Option | None, machine: Machine, folder: Path, job: Job) -> Export:
    if option is not None and (left_out := _left_out(option, job)):
        tell(f"rocsteady: these settings of option {option.number} are not exported: {left_out}.")
    known = doctors_knowledge()
    seen = visible_to_a_run(machine, known)
    torch = machine.torch
    strategy = option.strategy if option else None
    variables = strategy.variables if strategy else {}
    offer = _offer(option)
    moment = due(job.deadline, time.time())
    command = option.command if option and option.command else job.command
    gpus = ranks_per_host(command) or _gpus(option, seen.gpus)
    if (given := ranks_option(command)) and not given.isdecimal():
        count = plural(gpus, "GPU")
        tell(f"rocsteady: --nproc-per-node {given} is not a number; the file requests {count}.")
    return Export(
        option=_described(option, job) if option else "",
        name=job.name or folder.name or "training",
        command=command,
        written=date.today().isoformat(),  # noqa: DTZ011 - the user's own day
        folder=str(folder),
        checkpoints=job.resume.checkpoints if job.resume else (),
        resume=job.resume.arguments if job.resume else (),
        outputs=tuple(dict.fromkeys(file.path for file in job.done_when.files)),
        requirements=REQUIREMENTS if (folder / REQUIREMENTS).is_file() else "",
        gfx=next(iter(seen.gfx), ""),
        gpu=next((card_name(gpu, known) for gpu in machine.gpus.gpus), ""),
        gpus=gpus,
        torch=torch.version if torch else "",
        rocm=(torch.rocm or "") if torch else "",
        deadline=time.strftime("%a %d %b %Y %H:%M", time.localtime(moment)) if moment else "",
        due=moment - time.time() if moment else None,
        infra=offer.infra if offer else "",
        accelerator=offer.sky if offer else "",
        max_hourly_cost=round(offer.dollars * gpus * AT_MOST, 2) if offer else None,
        variables={name: value for name, value in variables.items() if value is not None},
        unset=tuple(name for name, value in variables.items() if value is None),
        setup=option.setup if option else None,
    )


def _option(kind: str, number: int | None, folder: Path, plan: Plan | None) -> Option | None:
    """Return the option with this number, or the first that such a file can be for."""
    if number is not None:
        return option_numbered(plan or load_plan(folder), number)
    try:
        plan = plan or load_plan(folder)
    except RocsteadyError:
        return None
    fitting = (option for option in plan.options if _is_for(kind, option))
    return min(fitting, key=lambda it: bool(it.changes), default=None)


def _described(option: Option, job: Job) -> str:
    """Say which option it is, and what speaks against starting it as it stands."""
    needed = f"the script must be changed first: {option.changes.removeprefix('script: ')}"
    dear = over_budget(option, job.budget)
    parts = (f"option {option.number}, {option.title}", needed if option.changes else "", dear)
    return "; ".join(filter(None, parts))


def _left_out(option: Option, job: Job) -> str:
    """Name the settings that only a run here can apply."""
    if _is_of_cpu(option) and not option.variant:
        there = option.do or f"rocsteady run -- {shown_command(job.command)}"
        where = "here" if option.do else "on that machine"
        raise click.UsageError(f"option {option.number} uses the CPU. Run it {where}: {there}")
    return describe_changes(Strategy(), replace(option.strategy, variables={}, gpus=None))


def _is_for(kind: str, option: Option) -> bool:
    if kind == "skypilot":
        return option.id.startswith(CLOUD)
    by_row = kind in ("wsl2", "container")
    return option.id == kind or not (by_row or option.setup or option.changes or _is_of_cpu(option))


def _is_of_cpu(option: Option) -> bool:
    return option.strategy.device == CPU or option.id.split("+")[0] == CPU


def _offer(option: Option | None) -> Offer | None:
    """Return what is rented; without a plan the cheapest offer that SkyPilot knows."""
    rented = option is not None and option.id.startswith(CLOUD)
    named = option.id.removeprefix(f"{CLOUD}-").partition("+")[0] if option and rented else ""
    known = [offer for offer in load_offers() if offer.sky]
    return min(known, key=lambda offer: (offer.id != named, offer.dollars), default=None)


def _gpus(option: Option | None, here: int) -> int:
    if option is not None and option.strategy.gpus is not None:
        return len(option.strategy.gpus)
    elsewhere = option is not None and option.id.startswith(CLOUD)
    return 1 if elsewhere else max(1, here)
