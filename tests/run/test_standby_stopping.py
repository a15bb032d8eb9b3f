"""However a run ends while a standby waits or imports: nothing is left of it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("a standby is of Linux", allow_module_level=True)

from supervised import ROCSTEADY, Project, Terminal, until
from torch_stand_in import stand_in_torch

pytestmark = pytest.mark.slow
TRAINS = """
    import os, signal, sys, time
    from torch.optim import optimizer
    number = int(os.environ["ROCSTEADY_RUN"].rpartition("-")[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for step in range(100_000):
        optimizer.step()
        time.sleep(0.02)
        if number <= 3 and step == 5: os.kill(os.getpid(), signal.SIGKILL)
        if step % 10 == 0: print("training", flush=True)
"""
IMPORTS, WAITS = "site/standby.taken", "pages/*.ready"


def started(project: Project, until_it: str) -> Terminal:
    """Start a run on a terminal, and wait for its standby."""
    project.environment["PYTHONPATH"] = stand_in_torch(project)
    script = project.script(TRAINS)
    shell = project.on_terminal("bash", "--norc", "-i")
    command = (*ROCSTEADY, "run", "--name", project.name, "--", sys.executable, script)
    shell.type(f"{' '.join(command)}\n")
    pattern = f"rocsteady-{project.name}-*-standby/{until_it}"
    until(lambda: any(Path("/dev/shm").glob(pattern)), within=120.0, why=lambda: shell.text)
    return shell


def stop(project: Project, shell: Terminal) -> None:
    assert project.say("stop", project.name).code == 0, shell.text


def type_interrupt(_: Project, shell: Terminal) -> None:
    shell.type("\x03")


def suspend_and_stop(project: Project, shell: Terminal) -> None:
    shell.type("\x1a")
    shell.wait_for("Stopped")
    shell.type("bg\n")
    stop(project, shell)


def terminate(project: Project, _: Terminal) -> None:
    (supervisor,) = [
        pid for pid, words in project.processes().items() if " rocsteady run " in words
    ]
    os.kill(supervisor, signal.SIGTERM)


@pytest.mark.parametrize("moment", [IMPORTS, WAITS], ids=["imports", "waits"])
@pytest.mark.parametrize("end", [stop, type_interrupt, suspend_and_stop, terminate])
def test_nothing_is_left(project: Project, end: object, moment: str) -> None:
    shell = started(project, moment)

    assert callable(end)
    end(project, shell)

    until(lambda: len(project.processes()) == 1, why=lambda: shell.text)  # the shell
    shell.type("exit\n")
    shell.code()
    assert project.left() == []
