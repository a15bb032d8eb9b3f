"""Shares of time, against scripts that measure their own."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from rocsteady_train.inside import wire

if TYPE_CHECKING:
    from tests.inside.conftest import Inside

pytestmark = pytest.mark.slow

PARTS = ("data", "compute", "backward", "optimizer", "evaluate")
POINTS = 0.05
STEPS_WITHIN = 4.0  # seconds of steps in one script
SCRIPTS = 40
IN_CI = 6


def drawn(seed: int) -> dict[str, Any]:
    """Draw one script: how long each part takes, in milliseconds, and how its loop is made."""
    draw = random.Random(seed)  # noqa: S311 - draws scripts, not secrets
    long, short = (2, 5, 10, 20, 40), (0, 1, 2, 5)
    parts = {part: draw.choice(long + short) for part in ("data", "forward", "backward", "own")}
    spec = {
        **parts,
        "optimizer": draw.choice(long + short),
        "workers": draw.choice((0, 0, 1, 2)),
        "accumulate": draw.choice((1, 1, 2, 4)),
        "validate": draw.choice((0, 0, 2, 10)),
        "epochs": draw.choice((1, 2, 5)),
    }
    step = sum(parts.values()) + spec["optimizer"] / spec["accumulate"] + spec["validate"] + 2
    spec["batches"] = max(8, round(STEPS_WITHIN * 1000 / step / spec["epochs"]))
    return spec


SEEDS = [
    pytest.param(seed, marks=[pytest.mark.ci] if seed < IN_CI else []) for seed in range(SCRIPTS)
]


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_are_those_of_the_scripts_own_clock(
    inside: Inside, torch_python: str, seed: int, request: pytest.FixtureRequest
) -> None:
    script = str(request.path.parents[1] / "victims" / "known_shares.py")
    done = inside.run(torch_python, script, json.dumps(drawn(seed)))
    assert done.code == 0, done.err
    true = json.loads(done.out)
    true["compute"] += true.pop("own")  # a page cannot tell the two apart
    words = inside.page().words
    shown = {part: words[wire.W_TIME + wire.PHASES.index(part)] for part in PARTS}

    whole, all_shown = sum(true.values()), sum(shown.values())
    off = {part: shown[part] / all_shown - true.get(part, 0.0) / whole for part in PARTS}
    assert {part: f"{by:+.1%}" for part, by in off.items() if abs(by) > POINTS} == {}
