"""The command line, in a project and a home of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import COUNTS, Command, carry_out


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    return carry_out


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was tried, and what came of it; with -n 0, as `nox -s hostile` has it."""
    if COUNTS:
        terminalreporter.section("hostile inputs")
    for (what, came_of_it), number in sorted(COUNTS.items()):
        terminalreporter.write_line(f"{what}: {number:,} {came_of_it}")
