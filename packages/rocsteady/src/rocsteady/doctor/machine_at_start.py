"""The machine as it was when a run began, for the run's report."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rocsteady_train.untrusted_file import read_head

from rocsteady.doctor.machine.machine import examine
from rocsteady.doctor.values import Diagnosis
from rocsteady.model import Value
from rocsteady.system.atomic_file import write_whole
from rocsteady.system.disk_root import DiskRoot

MACHINE_FILE = "machine-at-start.json"
MOST_BYTES = 1024 * 1024  # of what the doctor said


class MachineAtStart(Value, frozen=True, kw_only=True):
    """What the doctor said when a run began."""

    version: int = 1
    diagnosis: Diagnosis
    variables: dict[str, str]


def record_machine(folder: Path, command: Sequence[str], *, then: Callable[[], object]) -> None:
    """Examine this machine beside the run, and keep what the doctor says of it.

    In a thread that nobody waits for: a file of a driver that hangs costs the record, not the run.
    """

    def examined() -> None:
        from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge  # noqa: PLC0415 - as above

        try:
            knowledge = doctors_knowledge()
            machine, _ = examine(DiskRoot(python=_interpreter(command)), knowledge.variables)
            variables = {each.name: each.value or "" for each in machine.variables}
            told = MachineAtStart(diagnosis=diagnose(machine, knowledge), variables=variables)
            write_whole(folder / MACHINE_FILE, msgspec.json.encode(told))
            then()
        except Exception:  # noqa: BLE001, S110 - the report then says that it was not examined
            pass

    threading.Thread(target=examined, name="rocsteady-machine", daemon=True).start()


def machine_at_start(folder: Path) -> MachineAtStart | None:
    """Return what was recorded when a run began; None if nothing was, or by another version."""
    try:
        content = read_head(folder / MACHINE_FILE, MOST_BYTES, follow=False)
        return msgspec.json.decode(content, type=MachineAtStart)
    except (OSError, msgspec.DecodeError):
        return None


def _interpreter(command: Sequence[str]) -> str | None:
    """Return the interpreter that a command names; None: the doctor finds one."""
    name = Path(command[0]).name if command else ""
    return shutil.which(command[0]) if name.startswith("python") else None
