"""Whatever the text: it never raises, noise changes nothing, and time is bounded."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocsteady.doctor.knowledge.failures import Where, load_failures
from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.failures.tracebacks import find_tracebacks
from rocsteady.hangs.heartbeat_pages import RaisedException
from rocsteady.model import Role

KNOWN = load_failures()
CLASSIFIER = Classifier(KNOWN)
LINES = [  # one line each, that names its failure by itself
    it
    for it in KNOWN.signatures
    if it.where in (Where.LOG, Where.KERNEL) and it.alone and it.role is Role.ROOT
]
NOISE = st.sampled_from(
    (
        "",
        "epoch 1 step 7 of 90",
        "INFO saving to /home/user/out",
        "UserWarning: lr_scheduler.step() was called before optimizer.step()",
        "NCCL INFO Channel 00/04 : 0 1 2 3",
        "MIOpen(HIP): Warning [SQLiteBase] Missing system database file: gfx1030_36.kdb",
        "[W1114 10:00:00.1 socket.cpp:755] warning",
        "  warnings.warn(",
        "=" * 60,
    )
)
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
PIECES = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        (
            "Traceback (most recent call last):\n",
            '  File "/home/user/a.py", line 3, in f\n',
            "    x = 1\n",
            "KeyError: 'a'\n",
            "\nDuring handling of the above exception, another exception occurred:\n\n",
            "[rank0]: ",
            "[rank1]: Traceback (most recent call last):\n",
            "Original Traceback (most recent call last):\n",
            "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\n",
            'Thread 12 (idle): "MainThread"\n',
            "    backward (torch/_tensor.py:626)\n",
            "#0  0x00007f in hipMemcpy () from x.so\n",
            "Root Cause (first observed failure):\n",
            "loss: nan\n",
            "\x1b[31m",
            "\r",
            "╭── Traceback (most recent call last) ──╮\n",
            "out of memory. Tried to allocate 9.9.9 GiB. total capacity of 0 bytes\n",
        )
    ),
    st.sampled_from([it.sample for it in KNOWN.signatures]),
)


@QUICK
@given(st.binary(max_size=400))
def test_no_bytes_raise(content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    for hung in (False, True):
        CLASSIFIER.name(Symptoms(log=text, kernel=(text,), hung=hung))
    CLASSIFIER.name(Symptoms(log=content.decode("utf-8", "surrogateescape"), exit_code=1))


@QUICK
@given(
    st.lists(PIECES, max_size=12).map("".join),
    st.booleans(),
    st.integers(-(2**40), 2**40) | st.none(),
    st.integers(-5, 200) | st.none(),
)
def test_no_mix_of_pieces_raises(
    text: str,
    hung: bool,  # noqa: FBT001 - hypothesis fills it
    code: int | None,
    number: int | None,
) -> None:
    failure = CLASSIFIER.name(
        Symptoms(
            log=text,
            kernel=tuple(text.splitlines()),
            hung=hung,
            exit_code=code,
            signal=number,
            raised=(
                RaisedException(type=text[:20], message=text, place=text[:30], traceback=text),
            ),
        )
    )

    assert failure.kind in KNOWN.kinds
    assert all(line.isprintable() for line in failure.seen)


@pytest.mark.parametrize("signature", LINES, ids=lambda it: it.id)
def test_noise_around_a_single_cause_changes_nothing(signature: object) -> None:
    sample = getattr(signature, "sample", "")
    alone = CLASSIFIER.name(Symptoms(log=sample)).kind

    @settings(max_examples=8, deadline=None, derandomize=True)
    @given(st.lists(NOISE, max_size=6), st.lists(NOISE, max_size=6))
    def noisy(before: list[str], after: list[str]) -> None:
        log = "\n".join([*before, sample, *after])
        assert CLASSIFIER.name(Symptoms(log=log)).kind == alone

    noisy()


@QUICK
@given(st.permutations(range(4)), st.lists(NOISE, min_size=4, max_size=4))
def test_the_order_of_lines_of_one_cause_does_not_matter(
    order: list[int], noise: list[str]
) -> None:
    lines = (
        "Memory access fault by GPU node-1 (Agent handle: 0x5) on address 0x7f. Reason: Unknown.",
        "Fatal Python error: Aborted",
        "failed (exitcode: -6) local_rank: 0 (pid: 12) of binary: /venv/bin/python",
        "[rank1]: RuntimeError: NCCL communicator was aborted on rank 1.",
    )
    log = "\n".join(f"{noise[index]}\n{lines[index]}" for index in order)

    assert CLASSIFIER.name(Symptoms(log=log, exit_code=1)).kind == "memory-access-fault"


@QUICK
@given(st.lists(PIECES, max_size=10).map("".join))
def test_tracebacks_are_in_order_and_do_not_overlap(text: str) -> None:
    found = find_tracebacks(text)

    assert all(trace.type and trace.start < trace.end <= len(text) for trace in found)
    assert all(one.end <= other.start for one, other in itertools.pairwise(found))


@pytest.mark.parametrize(
    "unit",
    ["Error: ", "loss nan ", "(", "Traceback (most recent call last):\n", "\n", "\x1b]", "a"],
)
def test_hostile_texts_take_bounded_time(unit: str) -> None:
    text = (unit * (1 << 20))[: 1 << 20]

    start = time.process_time()
    CLASSIFIER.name(Symptoms(log=text, exit_code=1))
    assert time.process_time() - start < 2  # a tenth of it, where the machine is free


def test_a_mebibyte_is_read_in_a_tenth_of_a_second() -> None:
    line = "2026-01-14 10:00:00 INFO step {step} loss 0.{step} lr 1.2e-05 grad_norm 0.8 2.4it/s\n"
    log = "".join(line.format(step=step) for step in range(13_000))[: 1 << 20]
    end = "RuntimeError: HIP error: invalid device function\n"
    symptoms = Symptoms(log=f"{log}\n{end}", exit_code=1)

    times = []
    for _ in range(5):
        start = time.process_time()
        assert CLASSIFIER.name(symptoms).kind == "no-code-for-gpu"
        times.append(time.process_time() - start)
    assert min(times) < 0.1
