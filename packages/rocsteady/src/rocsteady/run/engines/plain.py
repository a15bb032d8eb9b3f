"""The plain engine: one command, one child. It also carries the user's own torchrun."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rocsteady_train.inside.launcher import options

from rocsteady.run.job.resume import Launch
from rocsteady.system.child import Child, start_child
from rocsteady.system.child_end import TerminalUse
from rocsteady.system.logfile import LogRules

LAUNCHERS = ("torchrun", "torch.distributed.run")


def chosen_rendezvous(command: Sequence[str]) -> str:
    """Return the rendezvous that the user chose for torchrun; "" if that is left to rocsteady."""
    if not any(word.endswith(LAUNCHERS) for word in command[:3]):
        return ""
    return options(command).get("rdzv_backend", "")


def start(  # noqa: PLR0913 - each is said by name
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
