"""What goes into a checkpoint comes out of it, to the bit; what cannot go in is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.ci
def test_states_of_every_kind(cases: Callable[[str], dict[str, str]]) -> None:
    assert cases("state.py") == {}
