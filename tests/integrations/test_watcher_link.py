"""What an agent of torchrun hears of its watcher, a real process at the end of a real socket."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from rocsteady_train.integrations.torchrun_channels import COMMAND, Watcher, rocsteady_command

WITHIN = 30.0
ENDS = """
    import socket, sys
    socket.socket(fileno=int(sys.argv[sys.argv.index("--ranks") + 1])).sendall({said!r})
"""


@pytest.fixture
def watcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Watcher]:
    package = tmp_path / "rocsteady"
    package.mkdir()
    (package / "__init__.py").touch()
    lines = [line.strip() for line in ENDS.format(said=request.param).strip().splitlines()]
    (package / "__main__.py").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(COMMAND, f"{shlex.quote(sys.executable)} -m rocsteady")
    made = Watcher(())
    made._process.wait(WITHIN)
    yield made
    made.reap()


END = pytest.mark.parametrize("watcher", [b'{"end": 76}\n'], indirect=True)


@END
def test_an_end_that_was_heard_between_two_generations_is_not_lost(watcher: Watcher) -> None:
    watcher.listen()  # as while ranks run

    assert (watcher.is_gone, watcher.end) == (True, 76)
    assert watcher.answer(WITHIN, "set") == {"end": 76}


@END
def test_an_end_is_heard_from_a_watcher_that_is_gone_by_the_time_it_is_told_something(
    watcher: Watcher,
) -> None:
    watcher.tell(generation=True)

    assert watcher.answer(WITHIN, "set") == {"end": 76}


@pytest.mark.parametrize("watcher", [b"", b"not json\n"], indirect=True)
def test_a_watcher_without_last_words_is_not_waited_for(watcher: Watcher) -> None:
    began = time.monotonic()

    watcher.tell(generation=True)

    assert watcher.answer(WITHIN, "set") is None
    assert (watcher.is_gone, watcher.end) == (True, None)
    assert time.monotonic() - began < WITHIN / 2


def installed(folder: Path) -> Path:
    """Put a program called rocsteady into a folder, whose name has a space."""
    folder.mkdir()
    program = folder / "rocsteady"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_the_command_is_the_configured_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = installed(tmp_path / "my tools")
    monkeypatch.setenv("PATH", str(installed(tmp_path / "bin").parent))

    monkeypatch.setenv(COMMAND, str(program))
    assert rocsteady_command() == [str(program)]
    monkeypatch.setenv(COMMAND, f"env A=1 {shlex.quote(str(program))}")
    assert rocsteady_command() == ["env", "A=1", str(program)]


def test_else_the_command_is_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = installed(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{program.parent}")
    monkeypatch.setenv(COMMAND, "")

    assert rocsteady_command() == [str(program)]


def test_else_the_command_is_that_of_this_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(COMMAND, raising=False)

    assert rocsteady_command() == [sys.executable, "-m", "rocsteady"]
