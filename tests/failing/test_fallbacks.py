"""An option of the plan on which nothing helps, and the next one, which leads to the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Failing

pytestmark = pytest.mark.slow

FOLLOWING = (sys.executable, str(Path(__file__).parents[1] / "victims" / "following.py"))


def test_what_fails_for_good_on_one_option_is_done_on_the_next(failing: Failing) -> None:
    failing.project.program = FOLLOWING

    ended = failing.run("gpu-dies", options=("--allow", "cpu"))  # refused: there is no GPU here

    assert (ended.code, "DONE" in ended.out) == (0, True), ended.err
    assert failing.failures == ["abort"]
    assert failing.remedies == ["option-2", "end"]
    assert failing.last_strategy() == {"device": "cpu"}
    assert any("option 2 of the plan" in line for line in ended.lines("resumed"))
    assert (
        failing.story["attempts"][-1]["first_step"] > 40
    )  # from the checkpoint of the first option
