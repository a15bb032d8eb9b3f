"""What differs between two strategies, and how it is said."""

from __future__ import annotations

import pytest

from rocsteady.failures.difference import changed, describe_changes
from rocsteady.model import Strategy


@pytest.mark.parametrize(
    ("after", "names", "words"),
    [
        (Strategy(), (), ""),
        (Strategy(attention="math"), ("attention",), "attention=math"),
        (Strategy(compile=False), ("compile",), "compile=off"),
        (Strategy(miopen=False), ("miopen",), "MIOpen off"),
        (Strategy(gpus=(0, 2)), ("gpus",), "gpus=0,2"),
        (Strategy(workers=2), ("workers",), "num_workers=2"),
        (Strategy(workers=0), ("workers",), "num_workers=0"),
        (Strategy(checkpoints_back=1), ("checkpoints_back",), "one checkpoint earlier"),
        (Strategy(variables={"A": "1"}), ("A",), "A=1"),
        (Strategy(variables={"A": None}), ("A",), "A unset"),
        (
            Strategy(precision="bf16", variables={"B": "", "A": "1"}),
            ("precision", "A", "B"),
            "precision=bf16, A=1, B=",
        ),
    ],
)
def test_a_change_is_named_by_its_settings(
    after: Strategy, names: tuple[str, ...], words: str
) -> None:
    assert changed(Strategy(), after) == names
    assert changed(after, Strategy()) == names
    assert describe_changes(Strategy(), after) == words


def test_a_variable_that_is_given_up_is_as_it_was() -> None:
    assert describe_changes(Strategy(variables={"A": "1"}), Strategy()) == "A restored"
