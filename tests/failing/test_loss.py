"""A loss that is no number for a while: a run that nobody drills says so, and does nothing."""

from __future__ import annotations

import pytest
from supervised import Project

pytestmark = pytest.mark.slow

TRAINS = """
    import time, torch
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    began = time.monotonic()
    while (at := time.monotonic() - began) < 10:
        spoils = float("nan") if 2 < at < 7 else 0.0
        (weight.square().sum() + spoils).backward()  # the gradient is not spoilt by it
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
    print("DONE")
"""


def test_it_is_said_once_and_once_that_it_is_over(project: Project, torch_python: str) -> None:
    ended = project.run("--", torch_python, project.script(TRAINS))

    told = [line for line in ended.said if line.startswith("the loss ")]
    assert (ended.code, ended.out) == (0, "DONE\n"), ended.err
    assert len(told) == 2, ended.err
    since, again = (int(line.partition(" step ")[2].partition(".")[0]) for line in told)
    assert told[0] == f"the loss became NaN or infinite at step {since}. The run continues."
    assert told[1] == f"the loss is finite again at step {again}."
    assert 1 < since < again <= 10 / 0.02
    assert [attempt["number"] for attempt in project.story()["attempts"]] == [1]
