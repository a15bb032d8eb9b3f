"""A name needs evidence: whose shared memory, whose kill, which line, who stopped it."""

from __future__ import annotations

import pytest

from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms

KILLED = "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.\n"
CRASH = """step 7/100
Fatal Python error: Segmentation fault

Thread 0x00007f23a (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 359 in wait

Current thread 0x00007ff96 [python] (most recent call first):
  File "/venv/lib/python3.12/site-packages/torch/nn/functional.py", line 9 in linear
  File "/home/user/train.py", line 88 in epoch
  File "/home/user/train.py", line 99 in <module>
"""
NATIVE = """Fatal Python error: Segmentation fault

Current thread 0x00007ff96 (most recent call first):
  <no Python frame>

Thread 0x00007f23a (most recent call first):
  File "/venv/lib/python3.12/site-packages/torch/autograd/graph.py", line 9 in backward
  File "/home/user/train.py", line 41 in step
"""


@pytest.mark.parametrize(
    ("symptoms", "kind"),
    [
        (Symptoms(signal=7), "bus-error"),
        (Symptoms(exit_code=135, log="Bus error (core dumped)"), "bus-error"),
        (Symptoms(signal=7, loader_workers=True), "shm-too-small"),
        (Symptoms(signal=7, shared_full=True), "shm-too-small"),
        (Symptoms(log="num_workers=4\nBus error (core dumped)"), "shm-too-small"),
    ],
)
def test_a_bus_error_is_shared_memory_only_with_workers_or_if_that_is_full(
    classifier: Classifier, symptoms: Symptoms, kind: str
) -> None:
    assert classifier.name(symptoms).kind == kind


@pytest.mark.parametrize(
    ("symptoms", "kind"),
    [
        (Symptoms(exit_code=1, log=KILLED), "loader-worker-died"),
        (Symptoms(log=KILLED), "loader-worker-died"),
        (Symptoms(exit_code=1, log=KILLED, oom_kills=1), "oom-host"),
        (
            Symptoms(
                exit_code=1,
                log=KILLED,
                kernel=("Out of memory: Killed process 4711 (python) total-vm:1kB",),
            ),
            "oom-host",
        ),
    ],
)
def test_a_worker_that_was_killed_is_out_of_memory_only_if_somebody_says_so(
    classifier: Classifier, symptoms: Symptoms, kind: str
) -> None:
    assert classifier.name(symptoms).kind == kind


@pytest.mark.parametrize(
    ("log", "line"), [(CRASH, "train.py:88 in epoch"), (NATIVE, "train.py:41 in step")]
)
def test_a_crash_has_its_python_line(classifier: Classifier, log: str, line: str) -> None:
    crash = classifier.name(Symptoms(log=log, signal=11))

    assert (crash.kind, crash.line) == ("segfault", line)


def test_a_log_that_says_who_stopped_the_run(classifier: Classifier) -> None:
    log = (
        "step 7/100\n"
        "Traceback (most recent call last):\n"
        '  File "/home/user/train.py", line 9, in <module>\n    lock.acquire()\n'
        "KeyboardInterrupt\n"
        "RuntimeError: DataLoader worker (pid(s) 5) exited unexpectedly\n"
        "rocsteady: stopped this attempt: hung, no step for 9.2 s, at train.py:9.\n"
    )
    stopped = classifier.name(Symptoms(log=log))

    assert stopped.kind == "stopped-by-rocsteady"
    assert stopped.seen[0].startswith("rocsteady: stopped this attempt: hung")
    resumed = log + "".join(f"step {step} loss 0.1\n" for step in range(7, 30))
    assert classifier.name(Symptoms(log=resumed)).kind != "stopped-by-rocsteady"
