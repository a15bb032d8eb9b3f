"""Before a run starts: end what is left of earlier ones whose supervisor was killed.

The keeper ends the tree when the supervisor is killed, the supervisor when the keeper is, and a
guard when both are. Should all three be gone, a second training must not start beside the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from rocsteady.errors import RocsteadyError
from rocsteady.store.identity import Identity
from rocsteady.store.values import RunLine
from rocsteady.system.leftovers import end_leftovers, guarded

MOST_NAMED = 5
OF_TORCHRUN = "ranks-of-torchrun"  # a file among the records of a run: its processes are not ours


def end_what_was_left(lines: Iterable[RunLine], here: Identity, say: Callable[[str], None]) -> None:
    """End it, or raise an error that names what cannot be ended.

    Ranks of somebody's torchrun go on without a watcher, and are left alone.
    """
    for line in lines:
        run = line.run
        if run.ended is not None or line.alive is not False or run.boot_id != here.boot_id:
            continue
        if (Path(run.folder) / OF_TORCHRUN).exists():
            continue
        found, left = end_leftovers(run.name, *_number_and_birth(run.process))
        if left:
            raise RocsteadyError(
                f"processes of run {run.name} are still running and cannot be terminated:"
                f" {named(left)}. Terminate them, or reboot, before you start a run here"
            )
        if found:
            say(
                f"the supervisor of run {run.name} was killed; terminated the processes it left:"
                f" {named(found)}."
            )


def guard(name: str, here: Identity) -> AbstractContextManager[None]:
    """Have the processes of our own run ended even if we and the keeper are killed."""
    return guarded(name, *_number_and_birth(here.process))


def _number_and_birth(process: str) -> tuple[int, int]:
    _, number, born = process.split(":")
    return int(number), int(born or 0)


def named(processes: Mapping[int, str]) -> str:
    """Spell processes for a person, by pid and program."""
    named = [f"{pid} ({name})" for pid, name in processes.items()][:MOST_NAMED]
    more = len(processes) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
