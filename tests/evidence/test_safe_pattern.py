"""A pattern that a person wrote must not be able to hold the supervisor up."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.evidence.safe_pattern import LINE, safe_pattern

BEARABLE = 2.0  # seconds for one line on a machine that has other things to do; 0.13 was measured
HARD = [r"\w{3,}(?:[ab]{2})*?^\W??c", r"x*x*x*(?P<n>\d)", r".*(?P<n>\d+)/", r"(?P<n>\d+)\D+\d+x"]


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        (r"episode (?P<n>\d+)/(?P<total>\d+)", LINE),
        (r"epoch +(?P<n>\d+) */ *(?P<total>\d+)", LINE),
        (r"(?i)step[: =]+(?P<n>[\d,]+)(?: of (?P<total>\d+))?", LINE),
        (r"(?:step|epoch|iter)\w*[ :=]+(?P<n>\d+)", LINE),
        (r"[^/]+/(?P<n>\d+)$", LINE),
        (r"(?P<n>\d{1,3}(?:,\d{3})*) done", LINE),
        (r"epoch.*?(?P<n>\d+)/(?P<total>\d+)", 288),
        (r".*step (?P<n>\d+).*", 288),
        (r"a.*b.*(?P<n>\d)", 98),
    ],
)
def test_the_more_ways_to_match_the_less_of_a_line_is_looked_at(text: str, characters: int) -> None:
    assert safe_pattern(text).characters == characters


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (r"(a+)+(?P<n>\d)", "a repeat or a choice inside a repeat can take forever"),
        (r"(?:a|ab)*(?P<n>\d)", "a repeat or a choice inside a repeat can take forever"),
        (r"(?:(?:a?){30}){2}(?P<n>\d)", "a repeat or a choice inside a repeat can take forever"),
        ("a?" * 30 + "a" * 30, "it can match a line in too many ways; say what may stand there"),
        ("(a|a)" * 30 + "b", "it can match a line in too many ways"),
        (r".*(?P<n>\d+).*of.*x", "it can match a line in too many ways"),
        (r"(?P<n>\d)\1", "it refers to what it matched, or looks ahead or back"),
        (r"(?=x)(?P<n>\d)", "it refers to what it matched, or looks ahead or back"),
        ("(?P<n>", "not a pattern: missing "),
        ("a{99999999999999999999}", "not a pattern: "),
        ("[[a]", "not a pattern: Possible nested set"),
        ("x" * 201, "longer than 200 characters"),
    ],
)
def test_what_could_take_forever_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        safe_pattern(text)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize("text", HARD)
@pytest.mark.parametrize("unit", ["0", "a", "x", "ab", "1/", "a1 "])
def test_the_worst_line_is_bearable(text: str, unit: str) -> None:
    pattern, characters = safe_pattern(text)
    line = (unit * characters)[:characters]
    before = time.perf_counter()

    pattern.search(line)

    assert time.perf_counter() - before < BEARABLE


@given(st.text(alphabet="ab.\\wd[]^$(|)?*+{}1,:P<n>=!-", max_size=40))
def test_any_text_is_a_pattern_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert safe_pattern(text).characters <= LINE
