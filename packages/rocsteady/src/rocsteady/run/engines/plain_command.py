"""The processes of an attempt, whoever started them. The plain engine starts one command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from rocsteady_train.inside.launcher import ONE_HOST, options

from rocsteady.system.child import Child, Start, start_child
from rocsteady.system.child_end import Exit, Interrupts, Stopping, StopResult


class AttemptProcesses(Protocol):
    """The processes of one attempt: a command that was started, or a generation of ranks."""

    pid: int
    interrupts: Interrupts

    @property
    def mid_line(self) -> bool:
        """Whether what was last shown on stderr did not end its line."""

    def wait(self, timeout: float | None = None) -> Exit | None:
        """Wait for the end, at most so many seconds."""

    def tree(self) -> tuple[int, ...]:
        """Return every living process."""

    def stop(
        self,
        stopping: Stopping,
        first: signal.Signals | None = signal.SIGTERM,
    ) -> StopResult:
        """End all of them, mildly first."""

    def tell(self, line: str) -> None:
        """Show one line of our own on stderr."""

    def close(self) -> None:
        """End what is left, and let go."""

    # What follows has a meaning only for a command that we started ourselves.

    def left_running(self) -> dict[int, str]:
        """Name what the command left running."""
        return {}

    def pass_on(self, number: signal.Signals) -> None:
        del number

    def at_prompt(self) -> bool:
        return False

    def suspend(self) -> None:
        """Stop them and ourselves, as ^Z does."""
        return

    def pause(self) -> None:
        """Stop them, and not ourselves."""

    def end_pause(self) -> None:
        return

    def is_stopped(self) -> bool:
        return False

    def detach_terminal(self) -> None:
        """Continue without our terminal."""
        return


Engine = Callable[[Start], AttemptProcesses]  # brings the processes of an attempt into being
LAUNCHERS = ("torchrun", "torch.distributed.run")
RESTARTS, HOSTS = "PET_MAX_RESTARTS", "PET_NNODES"  # torchrun's variables for its options


def chosen_rendezvous(command: Sequence[str]) -> str:
    """Return the rendezvous that the user chose for torchrun; "" if that is left to rocsteady."""
    return options(command).get("rdzv_backend", "") if _launcher(command) else ""


def without_own_restarts(command: tuple[str, ...], hosts: str = "1") -> tuple[str, ...]:
    """Return a command whose torchrun, on one host, leaves it to rocsteady to restart ranks.

    It would restart after any failure, also after an error in the script.
    """
    first = _launcher(command)
    own = command[first : _script(command, first)]
    if not first or options(own).get("nnodes", hosts) not in ONE_HOST:
        return command
    names = [word.partition("=")[0].replace("_", "-") for word in own]
    places = [at for at, name in enumerate(names) if name == "--max-restarts"]
    if not places:
        return command
    after = places[0] + (1 if "=" in own[places[0]] else 2)
    ours = (*own[: places[0]], "--max-restarts=0", *own[after:])
    return *command[:first], *ours, *command[first + len(own) :]


def _launcher(command: Sequence[str]) -> int:
    """Return where the arguments of a torchrun begin; 0 if it is none."""
    places = (at for at, word in enumerate(command[:3], 1) if word.endswith(LAUNCHERS))
    return next(places, 0)


def _script(command: Sequence[str], first: int) -> int:
    """Return where the script of a torchrun begins, or what names it."""
    ends = ("-m", "--module", "--no-python", "--no_python")
    places = (
        at for at, word in enumerate(command[first:], first) if word.endswith(".py") or word in ends
    )
    return next(places, len(command))


def start_command(start: Start) -> Child:
    """Start the command; of torchrun, only the restarts are rocsteady's."""
    variables = dict(start.environment)
    if _launcher(start.command) and variables.get(HOSTS, "1") in ONE_HOST:
        variables.pop(RESTARTS, None)
    command = without_own_restarts(tuple(start.command), variables.get(HOSTS, "1"))
    return start_child(replace(start, command=command, environment=variables))
