"""Every payload on a sound machine, and on machines that are faulty in one way each."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from rocsteady.model import Observation, ProbeOutcome
from rocsteady.probe.catalog import PROBES, Probe
from rocsteady.probe.guard import Guard
from rocsteady.probe.runner import ProbeRunner
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory

pytestmark = pytest.mark.slow

FAULTY = Path(__file__).parent / "faulty"
SHARED_MEMORY = Path("/dev/shm")
MakeRunner = Callable[..., ProbeRunner]
# The same code as others, with more processes that each import torch.
LEFT_OUT = ("loader 4 workers, forkserver", "loader 4 workers, spawn")
WITHOUT_GPU = {probe.title for probe in PROBES if probe.gpus} | {
    "device",
    "attention-backward efficient",
    "compile",  # where there is no compiler
}
SOUND = [probe for probe in PROBES if probe.title not in LEFT_OUT]


@pytest.fixture
def make_runner(tmp_path: Path, torch_python: str) -> Iterator[MakeRunner]:
    """Make runners, on faulty machines too, and see that nothing of them is left."""
    project, folder = tmp_path / "project", tmp_path / "probes"
    project.mkdir()
    folder.mkdir()
    place = find_place(project, state=tmp_path / "state")
    guard = Guard(Journal(place), Memory(place))
    before = shared()

    def make(fault: str = "") -> ProbeRunner:
        environment = {**os.environ, "HOME": str(tmp_path)}
        if fault:
            environment |= {
                "PYTHONPATH": str(FAULTY),
                "FAULTY": fault,
                "FAULTY_COUNT": str(tmp_path / "count"),
            }
        return ProbeRunner(torch_python, folder=folder, guard=guard, environment=environment)

    try:
        yield make
    finally:
        guard.journal.close()
        guard.memory.close()
    left = shared() - before
    deadline = time.monotonic() + 10.0
    while (alive() or left & shared()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (alive(), left & shared()) == ({}, set())


def alive() -> dict[int, str]:
    found = {}
    mark = f"ROCSTEADY_RUN=probe-{os.getpid()}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            content = environ.read_bytes()
            if mark + b"\0" in content or mark + b"-" in content:
                found[int(environ.parent.name)] = (environ.parent / "cmdline").read_text()
    return found


def shared() -> set[str]:
    """Name what torch and multiprocessing keep in shared memory."""
    names = (path.name for path in SHARED_MEMORY.iterdir())
    return {name for name in names if name.startswith(("torch_", "sem.mp-"))}


def titled(title: str) -> Probe:
    return next(probe for probe in PROBES if probe.title == title)


def tried(runner: ProbeRunner, title: str, tries: int = 5, **changes: object) -> Observation:
    probe = msgspec.structs.replace(titled(title), **changes)
    return runner.run(probe, tries=tries, seconds=60.0)


def test_every_probe_ends_well_here_or_says_why_it_is_not_run(make_runner: MakeRunner) -> None:
    runner = make_runner()

    seen = {
        probe.title: runner.run(probe, tries=probe.tries[0] and min(probe.tries[0], 25), seconds=2)
        for probe in SOUND
    }

    bad = {title: each.why for title, each in seen.items() if each.bad}
    assert bad == {}
    not_run = {
        title: each.why for title, each in seen.items() if each.outcome is ProbeOutcome.NOT_RUN
    }
    assert all(not_run.values())
    assert set(not_run) <= WITHOUT_GPU, not_run
    assert all(
        each.tries >= 1 for each in seen.values() if each.outcome is not ProbeOutcome.NOT_RUN
    )
    assert seen["import"].details["version"].startswith("2.")
    assert seen["copies pageable"].figures["bytes_per_s"] > 1e8


@pytest.mark.parametrize(
    ("fault", "title", "outcome", "why"),
    [
        ("segfault_in_matmul", "matmul-gradient bf16", ProbeOutcome.CRASH, "signal 11"),
        (
            "abort_in_matmul",
            "matmul-gradient bf16",
            ProbeOutcome.CRASH,
            "signal 6: Memory access fault by GPU node-1",
        ),
        ("one_wrong_element", "matmul-gradient bf16", ProbeOutcome.WRONG, "bf16 product"),
        ("out_of_memory", "matmul-gradient bf16", ProbeOutcome.NO_MEMORY, "HIP out of memory"),
        ("too_little_memory", "copies pageable", ProbeOutcome.NO_MEMORY, "can't allocate memory"),
    ],
)
def test_a_fault_is_told_for_what_it_is_and_the_others_still_run(
    make_runner: MakeRunner, fault: str, title: str, outcome: ProbeOutcome, why: str
) -> None:
    runner = make_runner(fault)

    large = {"arguments": {"pinned": False, "bytes": 1 << 30}}
    changes = large if fault == "too_little_memory" else {}
    found = tried(runner, title, tries=400, **changes)
    others = [tried(runner, "matmul-gradient fp32"), tried(runner, "attention-backward math")]

    assert (found.outcome, [each.outcome for each in others]) == (outcome, [ProbeOutcome.OK] * 2)
    assert why in found.why
    if fault == "abort_in_matmul":
        assert found.failure


@pytest.mark.parametrize("fault", ["hang_in_flash_backward", "ignore_sigterm"])
def test_a_hang_is_seen_and_ended_and_the_others_still_run(
    make_runner: MakeRunner, fault: str
) -> None:
    runner = make_runner(fault)

    found = tried(runner, "attention-backward flash", patience=5.0, first=15.0)
    others = [tried(runner, "matmul-gradient bf16"), tried(runner, "attention-backward math")]

    assert found.outcome is ProbeOutcome.HANG
    assert found.tries == 0
    assert Path(found.evidence).is_dir()
    assert [each.outcome for each in others] == [ProbeOutcome.OK] * 2


def test_a_worker_that_hangs_once_in_400_batches_is_found(make_runner: MakeRunner) -> None:
    runner = make_runner("hang_in_a_worker")

    found = tried(runner, "loader 2 workers, fork", tries=400, patience=5.0)
    other = tried(runner, "loader 0 workers", tries=400)

    assert found.outcome is ProbeOutcome.HANG
    assert 225 <= found.tries <= 237  # up to two batches a worker are loaded ahead
    assert (other.outcome, other.tries) == (ProbeOutcome.OK, 400)


def test_one_that_cannot_be_killed_is_told_and_the_others_still_run(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = make_runner("hang_in_flash_backward")

    with monkeypatch.context() as patched:  # no signal arrives, as in a wait in the kernel
        patched.setattr("rocsteady.probe.runner.kill_isolated", lambda _: False)
        found = tried(runner, "attention-backward flash", patience=3.0, first=15.0)
    other = tried(runner, "attention-backward math")

    assert found.outcome is ProbeOutcome.UNKILLABLE
    assert other.outcome is ProbeOutcome.OK


def test_a_torch_that_cannot_be_imported_is_told_by_the_import(make_runner: MakeRunner) -> None:
    runner = make_runner("fail_to_import")

    found = tried(runner, "import")

    assert found.outcome is ProbeOutcome.EXCEPTION
    assert "cannot enable executable stack" in found.why
