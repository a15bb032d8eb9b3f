"""The corpus of healthy lookalikes and real hangs: a tenth of it a day, in ten days all of it.

``python tests/victims/corpus.py --python PATH`` runs the whole corpus at full length.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lookalikes.base import Case
from lookalikes.catalogue import half_of, lookalikes, part_of, real_hangs
from lookalikes.runner import Setting, build, run

PARTS = 10
AT_ONCE = 12  # most of them wait
LATE = 20  # seconds: times are measured by the whole corpus, on a machine that has less to do


def of_today() -> list[Case]:
    day = int(os.environ.get("ROCSTEADY_TEST_DAY") or time.time() // 86_400)
    cases = part_of(lookalikes() + real_hangs(), day, PARTS)
    return sorted(cases, key=lambda case: -case.seconds(short=True))


def test_the_corpus_is_large_and_its_scripts_are_python() -> None:
    healthy, hangs = lookalikes(), real_hangs()
    cases = healthy + hangs

    for case in cases:
        for name, text in case.files().items():
            compile(text, f"{case.name}/{name}", "exec")
    assert len({(case.expect == "healthy", case.name) for case in cases}) == len(cases)
    assert len(healthy) >= 120
    assert len({case.family for case in healthy}) >= 15
    assert len(hangs) >= 45
    assert len({case.family for case in hangs}) >= 12
    assert all(case.lines() for case in hangs if case.expect != "stopped")


def test_ten_days_cover_the_corpus_and_its_halves_are_about_equal() -> None:
    cases = lookalikes() + real_hangs()

    days = [part_of(cases, day, PARTS) for day in range(20_770, 20_770 + PARTS)]

    assert sorted(case.name for day in days for case in day) == sorted(c.name for c in cases)
    assert 0.4 < sum(half_of(case) == "held-out" for case in cases) / len(cases) < 0.6


@pytest.mark.slow
@pytest.mark.turns(1)
def test_a_tenth_of_the_corpus_is_judged_as_it_should_be(torch_python: str, tmp_path: Path) -> None:
    build(tmp_path)
    context = Setting(python=torch_python, libraries=tmp_path, short=True, late=LATE)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda case: run(case, context), of_today()))

    wrong = [f"{r.name}: {r.wrong}\n{r.output[-2000:]}" for r in results if r.wrong]
    assert not wrong, "\n\n".join(wrong)
