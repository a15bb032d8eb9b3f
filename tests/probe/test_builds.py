"""Another build of torch has an environment of its own; one that cannot be made leaves nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rocsteady.errors import RocsteadyError
from rocsteady.probe.builds import INDEX, environment_of, interpreter_of, make_environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="unconfirmed on Windows")
# A python whose `-m venv` puts itself into the environment, and whose pip says what it is asked.
STAND_IN = """#!/bin/sh
if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit 0; fi
echo "$@" >> "{asked}"
echo "PYTHONPATH=$PYTHONPATH" >> "{asked}"
echo "no such version"
exit {code}
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no uv
    monkeypatch.setenv("PYTHONPATH", "/of/the/project")
    monkeypatch.setattr("rocsteady.probe.builds.LEAST_FREE", 0)
    return tmp_path / "asked"


def stand_in(asked: Path, code: int) -> str:
    path = asked.parent / "python"
    path.write_text(STAND_IN.format(asked=asked, code=code))
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        ("torch==2.9.1", "-m pip install --quiet torch==2.9.1"),
        (
            "torch==2.9.1+rocm6.4",
            f"-m pip install --quiet --index-url {INDEX}/rocm6.4 torch==2.9.1+rocm6.4",
        ),
    ],
)
def test_it_is_installed_into_an_environment_of_its_own(
    asked: Path, build: str, words: str
) -> None:
    assert interpreter_of(build) == ""

    made = make_environment(build, stand_in(asked, 0))

    assert asked.read_text().splitlines() == [words, "PYTHONPATH="]
    assert made == interpreter_of(build) == str(environment_of(build) / "bin" / "python")


def test_one_that_cannot_be_installed_leaves_nothing(asked: Path) -> None:
    with pytest.raises(RocsteadyError, match=r"torch==9\.9: no such version"):
        make_environment("torch==9.9", stand_in(asked, 1))

    assert not environment_of("torch==9.9").exists()
    assert interpreter_of("torch==9.9") == ""


def test_nothing_is_downloaded_onto_a_full_disk(
    asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocsteady.probe.builds.LEAST_FREE", 1 << 60)

    with pytest.raises(RocsteadyError, match="are free"):
        make_environment("torch==2.9.1", stand_in(asked, 0))

    assert not asked.exists()
