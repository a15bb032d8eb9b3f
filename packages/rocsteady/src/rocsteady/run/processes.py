"""The processes of an attempt, whoever started them. The plain engine starts one command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rocsteady_train.inside.launcher import options

from rocsteady.run.job.resume import Launch
from rocsteady.system.child import Child, start_child
from rocsteady.system.child_end import Exit, Interrupts, Stopping, StopResult, TerminalUse
from rocsteady.system.logfile import LogRules


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
        """Give every living process."""

    def stop(
        self,
        stopping: Stopping,
        first: signal.Signals | None = signal.SIGTERM,
    ) -> StopResult:
        """End all of them, mildly first."""

    def left_running(self) -> dict[int, str]:
        """Name what the command left running."""

    def pass_on(self, number: signal.Signals) -> None:
        """Send a signal on."""

    def at_prompt(self) -> bool:
        """Return whether somebody waits for keys."""

    def suspend(self) -> None:
        """Stop them and ourselves, as ^Z does."""

    def pause(self) -> None:
        """Stop them, and not ourselves."""

    def end_pause(self) -> None:
        """Continue what was paused."""

    def is_stopped(self) -> bool:
        """Return whether the command itself is stopped by a signal."""

    def detach_terminal(self) -> None:
        """Go on without our terminal."""

    def tell(self, line: str) -> None:
        """Show one line of our own on stderr."""

    def close(self) -> None:
        """End what is left, and let go."""


class Engine(Protocol):
    """Brings the processes of an attempt into being."""

    def __call__(  # noqa: PLR0913 - all are keyword arguments
        self,
        launch: Launch,
        *,
        environment: Mapping[str, str],
        folder: Path,
        run_id: str,
        log: Path,
        on_output: Callable[[bytes], None],
        terminal: TerminalUse,
        log_rules: LogRules,
    ) -> AttemptProcesses:
        """Start them."""


LAUNCHERS = ("torchrun", "torch.distributed.run")


def chosen_rendezvous(command: Sequence[str]) -> str:
    """Return the rendezvous that the user chose for torchrun; "" if that is left to rocsteady."""
    if not any(word.endswith(LAUNCHERS) for word in command[:3]):
        return ""
    return options(command).get("rdzv_backend", "")


def start_command(  # noqa: PLR0913 - all are keyword arguments
    launch: Launch,
    *,
    environment: Mapping[str, str],
    folder: Path,
    run_id: str,
    log: Path,
    on_output: Callable[[bytes], None],
    terminal: TerminalUse,
    log_rules: LogRules,
) -> Child:
    """Start the command as it is."""
    return start_child(
        launch.command,
        environment={**environment, **launch.environment},
        folder=folder,
        run_id=run_id,
        log=log,
        on_output=on_output,
        terminal=terminal,
        log_rules=log_rules,
    )
