"""The machine as it was when a run began, for the run's report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path

import msgspec

from rocsteady.doctor.machine.machine import examined
from rocsteady.doctor.training_gpus import READ_FIRST, SECOND, settings
from rocsteady.doctor.values import Diagnosis
from rocsteady.model import Value
from rocsteady.system.atomic_file import write_whole
from rocsteady.typed_values import read_json

MACHINE_FILE = "machine-at-start.json"
MOST_BYTES = 1024 * 1024  # of what the doctor said
HIDES_ALL = {(name, value) for name in (READ_FIRST, *SECOND) for value in ("", "-1")}


class MachineAtStart(Value, frozen=True, kw_only=True):
    """What the doctor said when a run began."""

    version: int = 1
    diagnosis: Diagnosis
    variables: dict[str, str]
    wants_gpu: bool = False  # torch is built for AMD GPUs, and no variable hides all of them


class Examination:
    """What the doctor says of this machine: found out in a thread that nobody has to wait for.

    A file of a driver that hangs costs what it would have said, not the run.
    """

    def __init__(self, command: Sequence[str], *, then: Callable[[], object]) -> None:
        self._told: Future[MachineAtStart | None] = Future()
        work = (tuple(command), then)
        threading.Thread(
            target=self._examine, args=work, name="rocsteady-machine", daemon=True
        ).start()

    def within(self, seconds: float) -> MachineAtStart | None:
        """Return what the doctor says; None if it could not, or not in that time."""
        wait([self._told], seconds)
        return self._told.result() if self._told.done() else None

    def keep(self, folder: Path) -> None:
        """Write what the doctor says beside a run, once it is known."""

        def write(told: Future[MachineAtStart | None]) -> None:
            with suppress(OSError):
                write_whole(folder / MACHINE_FILE, msgspec.json.encode(told.result()))

        self._told.add_done_callback(write)

    def _examine(self, command: tuple[str, ...], then: Callable[[], object]) -> None:
        from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge  # noqa: PLC0415 - as above

        told = None
        with suppress(Exception):  # the report then says that it was not examined
            knowledge = doctors_knowledge()
            machine = examined(knowledge, command)
            told = MachineAtStart(
                diagnosis=diagnose(machine, knowledge),
                variables={each.name: each.value or "" for each in machine.variables},
                wants_gpu=machine.torch is not None
                and machine.torch.build == "rocm"
                and not HIDES_ALL.intersection(settings(machine).items()),
            )
        self._told.set_result(told)
        with suppress(Exception):
            then()


def machine_at_start(folder: Path) -> MachineAtStart | None:
    """Return what was recorded when a run began; None if nothing was, or by another version."""
    return read_json(
        folder / MACHINE_FILE, MachineAtStart, MOST_BYTES, follow=False
    )  # or it is null
