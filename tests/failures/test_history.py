"""What the attempts of a run say of the settings that they had."""

from __future__ import annotations

import pytest

from rocsteady.failures.situation import Reach, made_difference
from rocsteady.model import Strategy

CLEAN = Strategy()
UNSET = Strategy(variables={"PYTORCH_NO_HIP_MEMORY_CACHING": None})


@pytest.mark.parametrize(
    ("attempts", "helped"),
    [
        # strategy, the step that it went on from, the step that it came to
        ([(CLEAN, 0, 39), (CLEAN, 30, 69), (UNSET, 60, 99)], False),  # as before
        ([(CLEAN, 0, 39), (CLEAN, 30, 69), (UNSET, 60, 92)], False),  # the end was near
        ([(CLEAN, 0, 2_574), (CLEAN, 2_500, 15_156), (UNSET, 15_000, 15_904)], False),
        ([(CLEAN, 0, 39), (CLEAN, 30, 69), (UNSET, 60, 500)], True),
        ([(CLEAN, 0, 39), (CLEAN, 30, 39), (UNSET, 30, 60)], True),  # past where it failed twice
        ([(CLEAN, 0, 39), (CLEAN, 30, 39), (UNSET, 30, 39)], False),
        ([(CLEAN, 0, None), (CLEAN, 0, None), (UNSET, 0, 100)], True),  # it made no step before
        ([(CLEAN, 0, None), (UNSET, 0, None)], True),  # steps are not counted: it is over
        ([(CLEAN, 0, 39), (CLEAN, 30, 182)], False),  # nothing was changed
    ],
)
def test_a_setting_helps_if_more_steps_are_made_with_it(
    attempts: list[tuple[Strategy, int, int | None]], *, helped: bool
) -> None:
    assert made_difference([Reach.between(*each) for each in attempts]) is helped
