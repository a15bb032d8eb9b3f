"""``rocsteady probe`` as a person types it, with a real interpreter and real faults."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from msgspec.structs import replace

from rocsteady.model import IntentKind
from rocsteady.store.identity import this_process
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady

posix = pytest.mark.skipif(sys.platform == "win32", reason="unconfirmed on Windows")
WITHIN = 300.0  # seconds, on a machine that is busy with other things
CRASHES = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n"
SLEEPS = "import time; time.sleep(600)\n"


class Run(NamedTuple):
    """How one run ended."""

    code: int
    out: str
    err: str


class Probing:
    """The command with a real interpreter; what it leaves is looked for."""

    def __init__(self, cli: Rocsteady, python: str) -> None:
        self.cli, self.python = cli, python
        self.state = cli.folder / ".local/state/rocsteady"

    def __call__(self, *words: str, env: Mapping[str, str] | None = None) -> Run:
        """Run it to its end."""
        started = self.start(*words, env=env)
        out, err = started.communicate(timeout=WITHIN)
        return Run(started.returncode, out, err)

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start it."""
        return subprocess.Popen(
            self.cli.line("probe", *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.cli.environment, **(env or {})},
            cwd=self.cli.folder,
        )

    def processes(self) -> list[str]:
        """Return what is left of probes of this folder."""
        lines = map(_line, Path("/proc").glob("[0-9]*/cmdline"))
        return [line for line in lines if str(self.state) in line]

    def scratch(self) -> list[Path]:
        """Return what is left of their folders."""
        return [*self.state.rglob("rocsteady-probe-*")]


@pytest.fixture
def probing(cli: Rocsteady, torch_python: str) -> Iterator[Probing]:
    with tempfile.TemporaryDirectory(prefix="rp-") as home:
        cli.folder = Path(home)
        cli.environment["HOME"] = home
        probing = Probing(cli, torch_python)
        yield probing
        deadline = time.monotonic() + 5
        while probing.processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert probing.processes() == []
        assert probing.scratch() == []


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def lines(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.out.splitlines()]


def in_front(folder: Path, name: str, text: str) -> dict[str, str]:
    """Return an environment in which a module of ours comes first."""
    path = folder / "in-front" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return {"PYTHONPATH": str(folder / "in-front")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("imporrt",), "Did you mean 'import'?"),
        (("--level", "4"), "is not one of"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_right(
    cli: Rocsteady, words: tuple[str, ...], said: str
) -> None:
    run = cli("probe", *words)

    assert run.code == 2
    assert said in " ".join(run.err.split())


def test_without_torch_there_is_nothing_to_try(cli: Rocsteady) -> None:
    run = cli("probe", "--python", sys.executable)

    assert run.code == 3
    assert run.out == ""
    assert "it has no torch. Name another with --python PATH" in run.err


def test_to_explain_makes_nothing(cli: Rocsteady) -> None:
    run = cli("probe", "--details")

    assert run.code == 0
    assert run.out == "No probes have run on this machine yet. To run them: rocsteady probe\n"
    assert not (cli.folder / ".local").exists()


@pytest.mark.ci
@posix
@pytest.mark.slow
def test_level_1_from_the_outside(probing: Probing) -> None:
    run = probing("--python", probing.python)

    assert run.code == 0, run.out + run.err
    first, *table = run.out.splitlines()
    assert first.startswith("Level 1: ")
    assert "None of them is known to reset a GPU." in " ".join(run.out.split())
    assert max(map(len, table)) <= 80
    assert any(line.startswith("  ok       import ") for line in table)
    assert table[-1].startswith("No failures in ")
    assert "\r" not in run.out
    progress = re.compile(r"rocsteady: \d+%, \d+ of \d+: .*")  # while it takes long
    assert [line for line in run.err.splitlines() if not progress.fullmatch(line)] == []


@posix
@pytest.mark.slow
def test_json_is_a_line_an_observation_and_a_summary(probing: Probing) -> None:
    run = probing("import", "--python", probing.python, "--json")

    observation, summary = lines(run)
    assert run.code == 0
    assert observation["observation"]["outcome"] == "ok"
    assert observation["observation"]["software"].startswith("GPU ")
    assert (summary["summary"]["ok"], summary["summary"]["wrong"]) == (1, 0)
    assert run.err.startswith("Level 1: 1 probe, ")


@posix
@pytest.mark.slow
def test_a_torch_that_crashes_is_found_the_rest_is_run_and_the_doctor_says_so(
    probing: Probing,
) -> None:
    env = in_front(probing.cli.folder, "torch/__init__.py", CRASHES)

    run = probing("import", "copies:pageable", "--python", probing.python, "--json", env=env)

    told = [line["observation"] for line in lines(run)[:-1]]
    assert run.code == 1
    assert [(each["probe"], each["outcome"]) for each in told] == [
        ("import", "crash"),
        ("copies", "crash"),
    ]
    assert "terminated by signal 11" in told[0]["why"]
    kept = [Path(each["evidence"]) for each in told]
    assert all(folder.is_relative_to(probing.state) and folder.is_dir() for folder in kept)
    doctor = probing.cli("doctor", "--python", probing.python)
    assert "seen-by-probe" in doctor.out
    assert "import crashed" in " ".join(doctor.out.split())
    explained = probing.cli("probe", "import", "--details", "--python", probing.python)
    assert str(kept[0]) in explained.out

    again = probing("import", "--python", probing.python)

    assert again.code == 0
    assert "import crashed" not in " ".join(
        probing.cli("doctor", "--python", probing.python).out.split()
    )


@posix
@pytest.mark.slow
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_what_it_started_and_leaves_nothing(
    probing: Probing, which: signal.Signals
) -> None:
    env = in_front(probing.cli.folder, "torch/__init__.py", SLEEPS)
    started = probing.start("import", "--python", probing.python, env=env)
    deadline = time.monotonic() + 60
    while not probing.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)

    started.send_signal(which)
    out, err = started.communicate(timeout=30)

    assert started.returncode == 130, out + err
    assert "Interrupted; the current probe was stopped." in out
    assert "Traceback" not in err


@posix
@pytest.mark.slow
def test_what_took_the_machine_down_is_told_and_not_tried_again_unasked(probing: Probing) -> None:
    place = find_place(probing.state / "probes", state=probing.state)
    journal = Journal(place, here=replace(this_process(), boot_id="another", process="1:2:3"))
    journal.intend(IntentKind.PROBE, '{"probe":"import","variant":""}')
    journal.close()

    first = probing("import", "--python", probing.python)
    doctor = probing.cli("doctor", "--python", probing.python)
    again = probing("import", "--python", probing.python, "--again")

    assert "the machine went down during import" in first.err
    assert "  not run  import  the machine crashed during it; use --again" in first.out
    assert "import crashed the machine" in " ".join(doctor.out.split())
    assert "went down" not in again.err
    assert "  ok       import" in again.out


@pytest.mark.ci
@pytest.mark.slow
def test_the_interpreter_of_a_folder_is_not_run_unasked(probing: Probing) -> None:
    folder = probing.cli.folder / ".venv"
    environment_with_torch(folder)
    python = script(folder / "bin" / "python", "#!/bin/sh\ntouch ran\nexit 1\n")

    refused = probing("import")
    was_run = list(probing.cli.folder.rglob("ran"))
    allowed = probing("import", "--yes")
    again = probing("import")

    assert (refused.code, was_run) == (2, [])
    assert f"{python} lies in this folder" in refused.err
    assert [each.code for each in (allowed, again)] == [1, 1]


def environment_with_torch(prefix: Path) -> None:
    """Lay out an environment in which the doctor finds torch."""
    torch = prefix / "lib" / "python3.11" / "site-packages" / "torch"
    torch.mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    (torch / "__init__.py").write_text("")
    (torch / "version.py").write_text("__version__ = '2.9.1'\n")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path
