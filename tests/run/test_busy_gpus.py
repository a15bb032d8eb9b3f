"""GPUs that did work are counted once each; none that answers is "not known"."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocsteady.hangs.looking.gpu_counters import read_gpu_counters
from rocsteady.model import Decision, Next, Outcome, RunOutcome, RunState, Strategy
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.attempt.gauges import GPU_WITHIN, gpu_readings
from rocsteady.run.job.values import DoneWhen, Job
from rocsteady.run.recovery.history import history_of
from rocsteady.run.run_end import RunEnd
from rocsteady.store.values import PhaseHistory, Sample
from rocsteady.system.child_end import Exit


def add_card(root: Path, number: int, busy: int, status: str = "active") -> None:
    """Lay out a card as the kernel does."""
    device = root / f"sys/devices/0000:0{number}:00.0"
    (device / "power").mkdir(parents=True)
    files = {"vendor": "0x1002", "power/runtime_status": status, "gpu_busy_percent": str(busy)}
    for name, content in files.items():
        (device / name).write_text(f"{content}\n")
    card = root / f"sys/class/drm/card{number}"
    card.mkdir(parents=True)
    (card / "device").symlink_to(device)


def test_one_that_sleeps_is_not_at_work_and_stays_asleep(tmp_path: Path) -> None:
    add_card(tmp_path, 0, 97)
    add_card(tmp_path, 1, 100, status="suspended")

    readings = gpu_readings(read_gpu_counters(within=GPU_WITHIN, root=tmp_path))

    assert readings == {"GPU 0 busy": 97.0, "GPU 1 busy": 0.0}


@pytest.mark.parametrize(
    ("looks", "outcome"),
    [
        ([{"GPU 0 busy": 97.0, "GPU 1 busy": 3.0}, {"GPU 1 busy": 100.0}], RunOutcome.DONE),
        ([{"GPU 0 busy": 97.0, "GPU 1 busy": 90.0}, {"GPU 0 busy": 0.0}], RunOutcome.DONE),
        ([{"GPU 0 busy": 97.0, "GPU 1 busy": 3.0}], RunOutcome.NOT_DONE),
        ([{"GPU 0 memory": 1e9, "loss": 97.0}], RunOutcome.NOT_DONE),
        ([], RunOutcome.NOT_DONE),
    ],
)
def test_one_that_was_busy_once_stays_counted(
    tmp_path: Path, looks: list[dict[str, float]], outcome: RunOutcome
) -> None:
    run = SimpleNamespace(name="calm-otter", folder=str(tmp_path), started=0.0)
    job = Job(command=("python", "train.py"), done_when=DoneWhen(gpus_busy=2))
    spec: Any = SimpleNamespace(job=job, run=run, folder=tmp_path)
    screen: Any = SimpleNamespace(show=lambda _: None, say=lambda _: None, names_run=True)
    services: Any = SimpleNamespace(announcer=screen, stop_requests=None, journal=None)
    monitor: Any = SimpleNamespace(due=None, remains=lambda: "")
    ended = RunEnd(spec, services, monitor)
    for number, measured in enumerate(looks):
        ended.look(
            Sample(
                at=float(number), step=number, verdict=RunState.HEALTHY, quiet=0.0,
                measured=measured,
            )
        )  # fmt: skip
    end = AttemptEnd(
        outcome=Outcome.BY_ITSELF, exit=Exit(code=0), seconds=1.0, progress_seconds=1.0,
        first_step=1, last_step=9, wrote_checkpoint=True, found=None, learned=PhaseHistory(),
        processes=(),
    )  # fmt: skip

    decision = Decision(next=Next.END, why="the script finished")

    assert ended.conclude(end, decision, history_of((), Strategy()), ())[1] is outcome
