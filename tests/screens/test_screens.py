"""Every screen, whole and plain at 80 columns; three of them also wider, and in colour.

The files in ``expected/`` are for people: a change of wording shows in their diff. To write them
anew: ``nox -s expected``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from samples import SAMPLES
from terminal import command, drawn

from rocsteady.doctor.knowledge.values import Step
from rocsteady.hangs.inspection import Inspection, ProcessState
from rocsteady.screens.inspection import to_do

if TYPE_CHECKING:
    from tests.conftest import Expected

HERE = Path(__file__).parent
MACHINES = HERE.parent / "machines"
RECIPES = HERE.parent / "doctor/recipes"
WIDTHS = (80, 120)
IN_EVERY_VARIANT = {"doctor-rx7900xt-allocator", "plan", "run-lines", "status"}
COMMANDS = {
    "help": ("--help",),
    **{
        f"help-{name}": (name, "--help")
        for name in (
            "doctor", "probe", "init", "plan", "run", "drill", "status", "watch",
            "logs", "notify", "stop", "report", "checkpoint", "explain",
            "env", "wheels", "machine", "fleet",
        )
    },
    "doctor-explain": ("explain", "caching-off"),
    "machine": ("machine", "--root", f"{MACHINES}/rx7900xtx.json"),
    "env": (
        "env", f"{RECIPES}/note-d.sh", "--root", f"{MACHINES}/rx7900xt-allocator.json",
    ),
    "env-none": (
        "env", f"{RECIPES}/none.sh", "--root", f"{MACHINES}/rx7900xtx.json",
    ),
    **{
        f"wheels{name}": ("wheels", "--gpu", gpu, "--os", system, *python)
        for name, gpu, system, *python in (
            ("", "gfx1100", "linux", "--python", "3.12"),
            ("-broken", "gfx90a", "linux", "--python", "3.9", "--all"),
            ("-none", "gfx803", "windows", "--python", "3.12"),
        )
    },
    "error-wheels": ("wheels", "--gpu", "gfx11000"),
    "error-env": ("env", "no-such.sh"),
    "workarounds-one": ("explain", "loader-inline"),
    "explain-known": ("explain", "RuntimeError: HIP out of memory. Tried to allocate 1.50 GiB"),
    "explain-unknown": ("explain", "all is well"),
    "error-command": ("docter",),
    "error-rule": ("explain", "caching-of"),
    "error-failure": ("explain", "hang-in-loder"),
}  # fmt: skip
SCREENS: dict[str, Callable[[], None]] = {
    **{name: partial(command, *words) for name, words in COMMANDS.items()},
    **SAMPLES,
}


def test_every_expected_screen_has_a_command() -> None:
    assert {path.stem for path in (HERE / "expected").iterdir()} == set(SCREENS)


@pytest.mark.parametrize("name", sorted(SCREENS))
def test_the_screen_is_as_expected(
    name: str, expected: Expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = [(80, False)]
    if name in IN_EVERY_VARIANT:
        variants = [(width, colour) for colour in (False, True) for width in WIDTHS]
    parts = []
    for width, colour in variants:
        text = drawn(monkeypatch, width, SCREENS[name], colour=colour)
        title = f" {name}: {width} columns{', colour' if colour else ''} "
        parts.append(f"{title:=^{width}}\n{text}")

    expected(HERE / "expected" / f"{name}.txt", "\n".join(parts))


@pytest.mark.parametrize("name", sorted(IN_EVERY_VARIANT))
def test_the_words_are_the_same_in_colour(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, coloured = (
        drawn(monkeypatch, 80, SCREENS[name], colour=colour) for colour in (False, True)
    )
    for tag in ("<bold red>", "<bold yellow>", "<bold>", "<dim>", "<red>", "<green>", "<yellow>"):
        coloured = coloured.replace(tag, "")
    coloured = coloured.replace("</>", "").replace("\u2713", "+").replace("\u2717", "x")

    words = [
        re.sub("^rocsteady(?:: |  )", "", text, flags=re.MULTILINE) for text in (coloured, plain)
    ]
    assert words[0].split() == words[1].split()


@pytest.mark.parametrize("state", [ProcessState.STUCK, ProcessState.WORKING])
def test_a_kernel_is_told_what_runs_its_notebook(state: ProcessState) -> None:
    found = Inspection(
        pid=4410, command=("python", "-m", "ipykernel_launcher", "-f", "/tmp/k.json"), age=743.0,
        state=state, why="", place="", waiters=(), ways_out=(), processes=1, memory_bytes=1,
        gpus="", seconds=2.4,
    )  # fmt: skip
    known = Step(text="Try this.", commands=("rocsteady run --with cpu -- python train.py",))

    typed = [each for step in to_do(found, [known]) for each in step.commands]

    notebooks = (HERE.parents[1] / "docs/howto/notebooks.md").read_text(encoding="utf-8")
    assert typed[-1] in notebooks.splitlines()
    assert not any("ipykernel_launcher" in each for each in typed)
