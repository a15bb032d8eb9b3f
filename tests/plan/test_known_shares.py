"""What report, watch and plan show of a script's time, against the script's own clock."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from rocsteady.plan.trials import STACKS_FOR
from rocsteady.report.plot_points import phase_seconds
from rocsteady.screens.watch import time_shares
from rocsteady.store.values import RunRecord

if TYPE_CHECKING:
    from pathlib import Path

    from supervised import Project

pytestmark = pytest.mark.slow

SCRIPTS, POINTS, WITHIN = 40, 0.05, 240.0
RUN_SECONDS, PLAN_SECONDS = 6.0, 60.0  # of steps
COMPUTE = ("compute", "backward", "optimizer")
PHASES = ("data", *COMPUTE, "evaluate")


def drawn(seed: int) -> dict[str, Any]:
    """Draw a script: half of them wait, half of them compute with torch and think in Python."""
    draw = random.Random(f"shown {seed}")  # noqa: S311 - draws scripts, not secrets
    long, short = (2, 5, 10, 20, 40), (0, 1, 2, 5)
    spec: dict[str, Any] = {
        "data": draw.choice(long + short),
        "own": draw.choice(long + short),
        "workers": draw.choice((0, 0, 1, 2)),
        "accumulate": draw.choice((1, 1, 2, 4)),
        "validate": draw.choice((0, 0, 2, 10)),
    }
    if seed % 2:
        spec |= {"layers": draw.choice((2, 8, 20)), "width": draw.choice((128, 256, 512))}
        spec["rows"] = draw.choice((1, 8, 32))
        spec["guess"] = spec["layers"] * (spec["width"] / 256) ** 2 * 0.5
    else:
        spec |= {part: draw.choice(long + short) for part in ("forward", "backward", "optimizer")}
        spec["guess"] = spec["forward"] + spec["backward"] + spec["optimizer"] / spec["accumulate"]
    return spec


def of(spec: dict[str, Any], seconds: float, epochs: int) -> str:
    step = spec["data"] + spec["own"] + spec["guess"] + spec["validate"] + 2
    batches = max(8, round(seconds * 1000 / step / epochs))
    return json.dumps({**spec, "epochs": epochs, "batches": batches})


def off(shown: dict[str, float], true: dict[str, float]) -> dict[str, str]:
    """Return by how many points each share is off, where that is too many."""
    whole, all_shown = sum(true.values()), sum(shown.values())
    by = {part: shown.get(part, 0.0) / all_shown - true[part] / whole for part in true}
    return {part: f"{each:+.1%}" for part, each in by.items() if abs(each) > POINTS}


def first_trial(lines: list[Any]) -> list[Any]:
    """Leave out what the script told when it was tried again, with more workers."""
    whole = [sum(spent.values()) for _, spent in lines]
    again = (number for number, (one, two) in enumerate(pairwise(whole), 1) if two < one)
    return lines[: next(again, None)]


def in_window(kept: Path, measured: float) -> dict[str, float]:
    """Return what the script spent while its pace was measured, before its stacks were sampled."""
    lines = first_trial([json.loads(line) for line in kept.read_text().splitlines()])
    until = lines[-1][0] - STACKS_FOR
    first = min(lines, key=lambda line: abs(line[0] - (until - measured)))[1]
    last = min(lines, key=lambda line: abs(line[0] - until))[1]
    return {part: last[part] - first.get(part, 0.0) for part in last}


def by_phase(true: dict[str, float]) -> dict[str, float]:
    own = {"compute": true.get("compute", 0.0) + true.get("own", 0.0)}
    return {part: true.get(part, 0.0) for part in PHASES} | own


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_report_and_watch_show_the_scripts_own_shares(
    project: Project, torch_python: str, request: pytest.FixtureRequest, seed: int
) -> None:
    project.script((request.path.parents[1] / "victims" / "known_shares.py").read_text())
    project.environment["TRUTH"] = str(project.home / "truth.json")
    words = of(drawn(seed), RUN_SECONDS, epochs=2)
    ended = project.run("--", torch_python, "train.py", words, within=WITHIN)
    assert ended.code == 0, ended.err
    true = by_phase(json.loads(ended.out.splitlines()[-1]))

    record = msgspec.convert(project.story(), RunRecord, strict=False)
    reported = {name: spent for name, spent in phase_seconds(record.progress) if name in PHASES}
    watched = {name: share for name, share in time_shares(record) if name in PHASES}

    assert off(reported, true) == {}
    assert off(watched, true) == {}


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_plan_shows_the_scripts_own_shares(
    project: Project, torch_python: str, request: pytest.FixtureRequest, seed: int
) -> None:
    project.script((request.path.parents[1] / "victims" / "known_shares.py").read_text())
    kept: Path = project.home / "truth.json"
    project.environment["TRUTH"] = str(kept)
    spec = drawn(seed)
    command = (torch_python, "train.py", of(spec, PLAN_SECONDS, epochs=30))
    told = project.say("plan", "--yes", "--trial", "12s", "--json", "--", *command, within=WITHIN)
    assert told.code == 0, told.err
    limits = {it["part"]: it["share"] for it in json.loads(told.out)["limits"]}
    together = limits.pop("compute and own code", 0.0)  # where they are not told apart
    options = {option["id"]: option for option in json.loads(told.out)["options"]}
    measured = options["cpu"]["pace"]["seconds"]
    true = by_phase(spent := in_window(kept, measured))
    groups = {part: true[part] for part in ("data", "evaluate")}
    groups["compute"] = sum(true[part] for part in COMPUTE)
    shown = {part: limits.get(part, 0.0) for part in groups}
    own = limits.get("own code", 0.0)
    shown["compute"] += together
    if together or "layers" not in spec:  # without layers all of it waits in the script's own lines
        shown["compute"] += own
    else:
        groups["own code"], shown["own code"] = spent["own"], own
        groups["compute"] -= spent["own"]

    assert off(shown, groups) == {}, limits
