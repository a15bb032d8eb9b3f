"""A pattern that a person wrote must not be able to hold the supervisor up."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.hangs.line_pattern import MOST_TIMEOUTS, SEARCH_WITHIN, SEARCHED_LENGTH, LinePattern

NEVER_ENDS = [r"(a+)+(?P<n>\d)", "a?" * 30 + "a" * 30 + r"(?P<n>\d)", "(a|a)" * 30 + r"(?P<n>b)"]


@pytest.mark.parametrize(
    ("text", "line", "n"),
    [
        (r"episode (?P<n>\d+)/(?P<total>\d+)", "episode 12/400", "12"),
        (r"(?i)step[: =]+(?P<n>[\d,]+)(?: of (?P<total>\d+))?", "Step: 1,200 of 5000", "1,200"),
        (r"epoch.*?(?P<n>\d+)/(?P<total>\d+)", "x" * 900 + "epoch 3/9", "3"),
        (r"(?<=step )(?P<n>\d+)", "step 7", "7"),
    ],
)
def test_the_named_groups_are_found(text: str, line: str, n: str) -> None:
    found = LinePattern(text).search(line)
    assert found
    assert found.groups["n"] == n


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("(?P<n>", "not a pattern: missing "),
        ("[a", "not a pattern: "),
        ("x" * 201, "longer than 200 characters"),
    ],
)
def test_what_is_no_pattern_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        LinePattern(text)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize("text", NEVER_ENDS)
def test_a_pattern_that_would_take_forever_is_given_up(text: str) -> None:
    pattern = LinePattern(text)
    line = "a" * SEARCHED_LENGTH
    before = time.thread_time()

    for _ in range(1000):
        pattern.search(line)

    assert time.thread_time() - before < 4 * SEARCH_WITHIN * MOST_TIMEOUTS


@given(st.text(alphabet="ab.\\wd[]^$(|)?*+{}1,:P<n>=!-", max_size=40))
def test_any_text_is_a_pattern_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        LinePattern(text).search("step 1 of 20")
