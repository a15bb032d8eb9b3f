"""What the real PyTorch prints when it really fails, in the version that is installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.model import Failure

TORCH_PYTHON = "ROCSTEADY_TEST_TORCH_PYTHON"
FAILS = Path(__file__).with_name("fails.py")

pytestmark = pytest.mark.slow


def failure(classifier: Classifier, folder: Path, case: str) -> Failure:
    python = os.environ.get(TORCH_PYTHON)
    if not python:
        pytest.fail(f"{TORCH_PYTHON} names no interpreter with torch: use nox -s slow")
    ranks = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    done = subprocess.run(
        [python, *(ranks if case.startswith("rank") else ()), str(FAILS), case],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=180,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode != 0
    log = done.stdout.decode("utf-8", "replace")
    return classifier.name(Symptoms(log=log, exit_code=done.returncode))


@pytest.mark.parametrize(
    ("case", "kind", "place"),
    [
        ("worker_raises", "script-error", "fails.py _fail_in_worker"),
        ("worker_bus", "shm-too-small", ""),
        ("worker_slow", "loader-timeout", "fails.py load"),
        ("no_gpu", "torch-without-gpu-support", "fails.py <lambda>"),
        ("shapes", "script-error", "fails.py <lambda>"),
        ("host_memory", "oom-host", "fails.py <lambda>"),
        ("full_disk", "disk-full", "fails.py <lambda>"),
        ("corrupt", "checkpoint-corrupt", "fails.py corrupt"),
        ("not_a_number", "nan-loss", "SqrtBackward0"),
        ("alone", "rendezvous-failed", "fails.py meet"),
        ("interrupted", "interrupted", "fails.py interrupted"),
    ],
)
def test_one_process(
    classifier: Classifier, tmp_path: Path, case: str, kind: str, place: str
) -> None:
    named = failure(classifier, tmp_path, case)

    assert (named.kind, named.fingerprint.place) == (kind, place)


@pytest.mark.parametrize("case", ["worker_exits", "worker_crashes", "worker_killed"])
def test_a_worker_that_is_gone(classifier: Classifier, tmp_path: Path, case: str) -> None:
    """How the trainer notices is chance; that memory ran out, nobody said."""
    assert failure(classifier, tmp_path, case).kind == "loader-worker-died"


@pytest.mark.parametrize(
    ("case", "kind", "rank"),
    [
        ("rank_raises", "script-error", 1),
        ("rank_crashes", "segfault", 1),
        ("rank_killed", "killed", 1),
        ("rank_slow", "collective-timeout", 0),
    ],
)
def test_two_ranks(classifier: Classifier, tmp_path: Path, case: str, kind: str, rank: int) -> None:
    named = failure(classifier, tmp_path, case)

    assert (named.kind, named.rank) == (kind, rank)
