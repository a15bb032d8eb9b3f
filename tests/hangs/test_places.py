"""Which line of a stack a person is told."""

from __future__ import annotations

import pytest

from rocsteady.hangs.proof.stack_frames import place_of

WAIT = "wait (python3.11/threading.py:359)"
FLUSH = "flush (site-packages/posthog/client.py:812)"


@pytest.mark.parametrize("console", ["accelerate", "llamafactory-cli", "nnUNetv2_train"])
def test_a_trainers_own_command_is_told_by_the_innermost_line_of_a_library(console: str) -> None:
    main = "main (site-packages/accelerate/commands/accelerate_cli.py:50)"

    assert place_of([WAIT, FLUSH, main, f"<module> (bin/{console}:10)"]) == "client.py:812 flush"


def test_the_users_own_line_goes_before_a_librarys() -> None:
    assert place_of([WAIT, FLUSH, "train (project/train.py:9)"]) == "train.py:9 train"


def test_python_itself_is_told_where_there_is_nothing_else() -> None:
    assert place_of([WAIT]) == "threading.py:359 wait"
