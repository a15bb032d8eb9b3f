"""What every test may use: the recorded machines, the knowledge base, and files of expectations."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge
from rocsteady.doctor.facts import Facts, gather
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.doctor.machine.recording import RecordedRoot, read_recording
from rocsteady.doctor.values import Diagnosis

if os.name != "nt":
    from supervised import Project, until

RECORDINGS = Path(__file__).parent / "machines"
TORCH_PYTHON = "ROCSTEADY_TEST_TORCH_PYTHON"
TODAY = date(2026, 11, 17)  # for the age of the knowledge

settings.register_profile("here", deadline=None)  # a busy machine is no failure; CI has its own
if not os.environ.get("CI"):
    settings.load_profile("here")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what an account remembers of the runs of a test with the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Recorded:
    def __init__(self, knowledge: Knowledge) -> None:
        self.names = recorded_names()
        self.knowledge = knowledge
        self.machine = cache(self._machine)
        self.diagnosis = cache(self._diagnosis)

    def path(self, name: str) -> Path:
        return RECORDINGS / f"{name}.json"

    def facts(self, name: str) -> Facts:
        return gather(self.machine(name), self.knowledge)

    def _machine(self, name: str) -> Machine:
        root = RecordedRoot(read_recording(self.path(name)))
        return examine(root, self.knowledge.variables)[0]

    def _diagnosis(self, name: str) -> Diagnosis:
        return diagnose(self.machine(name), self.knowledge, today=TODAY)


class Expected:
    """Compares a text with the file that holds what is expected, or writes that file."""

    def __init__(self, *, update: bool) -> None:
        self._update = update

    def __call__(self, path: Path, text: str) -> None:
        """Compare; the whole text counts."""
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.exists(), f"{path.name} is missing; write it with --update-expected"
        assert text == path.read_text(encoding="utf-8"), "if it should be so: --update-expected"


def recorded_names() -> list[str]:
    return sorted(path.stem for path in RECORDINGS.glob("*.json"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-expected",
        action="store_true",
        help="write expected output and schemas anew instead of comparing; read the diff",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for ``every_machine`` once for every recorded machine."""
    if "every_machine" in metafunc.fixturenames:
        metafunc.parametrize("every_machine", recorded_names())


@pytest.fixture(scope="session")
def knowledge() -> Knowledge:
    return doctors_knowledge()


@pytest.fixture(scope="session")
def recorded(knowledge: Knowledge) -> Recorded:
    return Recorded(knowledge)


@pytest.fixture(scope="session")
def expected(request: pytest.FixtureRequest) -> Expected:
    return Expected(update=bool(request.config.getoption("--update-expected")))


@pytest.fixture(scope="session")
def torch_python() -> str:
    """Return an interpreter with torch, which does not have rocsteady."""
    python = os.environ.get(TORCH_PYTHON)
    if not python:
        pytest.fail(f"{TORCH_PYTHON} names no interpreter with torch: use nox -s full")
    return python


@pytest.fixture(scope="session")
def clean_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an interpreter with rocsteady, as pip installs the checkout, and what that needs."""
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
    checkout = str(Path(__file__).parents[1])
    subprocess.run([*pip, "install", checkout], check=True, capture_output=True)
    return python


if os.name != "nt":

    @pytest.fixture
    def project(tmp_path: Path) -> Iterator[Project]:
        """Give a folder for real runs, and see to it that nothing of them is left."""
        made = Project(tmp_path)
        try:
            yield made
            until(lambda: not made.processes(), 5.0, lambda: str(made.processes()))
            assert made.left() == []
        finally:
            made.close()
