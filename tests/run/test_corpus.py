"""A few cases of the corpus of healthy look-alikes and real hangs, judged as they should be.

``python tests/victims/corpus.py --python PATH`` runs the whole corpus at full length, as ``nox -s
full`` does.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lookalikes.catalogue import half_of, lookalikes, real_hangs
from lookalikes.runner import Setting, build, run

HEALTHY = (  # of different families, in the main process, in workers and in ranks
    "timeouts/event",
    "timers/posix-timer-worker",
    "polling/thread-polls",
    "foreign-locks/named-semaphore-worker",
    "shared-memory/futex-in-thread",
    "sleeping-holders/mp-lock-worker",
    "subprocesses/detached-grandchild",
    "sockets/recv-rank",
    "slow-io/trickle",
    "device-waits/blocks-holding-the-gil",
    "after-training/atexit-waits-for-answer",
    "clock-jumps/back-in-a-wait",
)
HANGS = (
    "self-deadlock/lock-worker",
    "lock-order/two",
    "queues/producer-died",
    "loader-workers/lock-held-at-fork",
    "fork/logging",
    "collectives/missing-rank",
    "gil/in-backward",
    "unprovable/far-timeout",
)
AT_ONCE = 12  # most of them wait
LATE = 20  # seconds: times are measured by the whole corpus, on a machine that has less to do


def test_scripts_of_the_corpus_are_python_with_unique_names_and_halves_are_about_equal() -> None:
    cases = lookalikes() + real_hangs()

    for case in cases:
        for name, text in case.files().items():
            compile(text, f"{case.name}/{name}", "exec")
    assert len({(case.expect == "healthy", case.name) for case in cases}) == len(cases)
    assert all(case.lines() for case in real_hangs() if case.expect != "stopped")
    assert 0.4 < sum(half_of(case) == "held-out" for case in cases) / len(cases) < 0.6


@pytest.mark.slow
@pytest.mark.ci
def test_healthy_scripts_are_left_alone_and_hangs_are_found(
    torch_python: str, tmp_path: Path
) -> None:
    build(tmp_path)
    setting = Setting(python=torch_python, libraries=tmp_path, short=True, late=LATE)
    cases = [case for case in lookalikes() if case.name in HEALTHY]
    cases += [case for case in real_hangs() if case.name in HANGS]
    cases.sort(key=lambda case: -case.seconds(short=True))
    assert len(cases) == len(HEALTHY) + len(HANGS)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda case: run(case, setting), cases))

    wrong = [f"{r.name}: {r.wrong}\n{r.output[-2000:]}" for r in results if r.wrong]
    assert not wrong, "\n\n".join(wrong)
