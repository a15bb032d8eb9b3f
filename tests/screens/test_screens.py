"""Every screen, whole, at 80 and 120 columns, plain and in colour.

The files in ``expected/`` are for people: a change of wording shows in their diff. To write them
anew: ``nox -s screens``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from samples import SAMPLES
from terminal import command, drawn

if TYPE_CHECKING:
    from tests.conftest import Expected

HERE = Path(__file__).parent
MACHINES = HERE.parent / "machines"
RECIPES = HERE.parent / "doctor/recipes"
WIDTHS = (80, 120)
COMMANDS = {
    "help": ("--help",),
    **{
        f"help-{name}": (name, "--help")
        for name in (
            "doctor", "env", "wheels", "probe", "init", "plan", "run", "drill", "status", "watch",
            "logs", "notify", "stop", "report", "checkpoint", "explain",
        )
    },
    "doctor-explain": ("doctor", "--explain", "caching-off"),
    "machine": ("machine", "--root", f"{MACHINES}/rx7900xtx.json"),
    "env": ("env", f"{RECIPES}/note-d.sh", "--root", f"{MACHINES}/rx7900xt-allocator.json"),
    "env-none": ("env", f"{RECIPES}/none.sh", "--root", f"{MACHINES}/rx7900xtx.json"),
    "wheels": ("wheels", "--gpu", "gfx1100", "--os", "linux", "--python", "3.12"),
    "wheels-broken": ("wheels", "--gpu", "gfx90a", "--os", "linux", "--python", "3.9", "--all"),
    "wheels-none": ("wheels", "--gpu", "gfx803", "--os", "windows", "--python", "3.12"),
    "error-wheels": ("wheels", "--gpu", "gfx11000"),
    "error-env": ("env", "no-such.sh"),
    "workarounds": ("explain", "--workarounds"),
    "workarounds-one": ("explain", "loader-inline"),
    "workarounds-for": (
        "explain", "--workarounds", "hang-in-loader", "--root", f"{MACHINES}/rx7900xtx.json",
    ),
    "explain-known": ("explain", "RuntimeError: HIP out of memory. Tried to allocate 1.50 GiB"),
    "explain-unknown": ("explain", "all is well"),
    "error-command": ("docter",),
    "error-rule": ("doctor", "--explain", "caching-of"),
    "error-failure": ("explain", "--workarounds", "hang-in-loder"),
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
    parts = []
    for colour in (False, True):
        for width in WIDTHS:
            text = drawn(monkeypatch, width, SCREENS[name], colour=colour)
            title = f" {name}: {width} columns{', colour' if colour else ''} "
            parts.append(f"{title:=^{width}}\n{text}")

    expected(HERE / "expected" / f"{name}.txt", "\n".join(parts))


@pytest.mark.parametrize("name", sorted(SCREENS))
def test_the_words_are_the_same_in_colour(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, coloured = (
        drawn(monkeypatch, 80, SCREENS[name], colour=colour) for colour in (False, True)
    )
    for tag in ("<bold red>", "<bold yellow>", "<bold>", "<dim>", "<red>", "<green>", "<yellow>"):
        coloured = coloured.replace(tag, "")

    assert coloured.replace("</>", "").split() == plain.split()
