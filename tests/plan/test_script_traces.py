"""Which printed counter counts the job: not that of an epoch, nor of files that were read."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from rocsteady.hangs.line_pattern import LinePattern
from rocsteady.plan.script_traces import (
    LogCounter,
    _apart,
    _there_before,
    epochs_in,
    of_the_job,
    read_printed,
)

STAMP = "2026-11-15T10:00:{second:02}.000Z "
BEGAN = 1794736800.0  # 2026-11-15T10:00:00Z


def counters(tmp_path: Path, *lines: str, steps: tuple[int, ...] = ()) -> tuple[LogCounter, ...]:
    """Read lines that were printed a second apart."""
    log = tmp_path / "attempt-1.log"
    text = [STAMP.format(second=second) + line for second, line in enumerate(lines)]
    log.write_text("\n".join(text) + "\n")
    return read_printed(log, [(BEGAN + at, step) for at, step in enumerate(steps)]).counters


def test_a_counter_is_read_with_the_steps_that_were_made_meanwhile(tmp_path: Path) -> None:
    lines = ("step   40/1200 loss 0.5", "step   60/1200 loss 0.4", "step 80/1200 loss 0.3")

    assert counters(tmp_path, *lines, steps=(40, 60, 80)) == (
        LogCounter(
            word="step",
            n=80,
            total=1200,
            pattern=r"step\s*(?P<n>\d+)/(?P<total>\d+)",
            values=3,
            first=40,
            falls=False,
            in_epoch=False,
            each=1.0,
        ),
    )


@pytest.mark.parametrize(
    ("lines", "word", "total"),
    [
        (("  1%|    | 10/1000 [00:01<01:00, 9.9it/s]",), "", 1000),
        (("iteration 5 of 70",), "iteration", 70),
        (("Episode: 5 / 300, reward 2.5", "Episode: 6 / 300, reward 9"), "episode", 300),
        (("\x1b[1mupdates\x1b[0m 5/70",), "update", 70),
        (("epoch 1/9 step 9/99", "epoch 2/9 step 12/99", "epoch 2/9 step 13/99"), "step", 99),
        (("epoch 1/9 step 9/99", "epoch 1/9 step 12/99", "epoch 1/9 step 13/99"), None, None),
        (("Epoch 1/10 batch 3/100",), None, None),
        (("Epoch 0:  31%|###  | 10/32 [00:01<00:02]",), None, None),
        (("batch 98/100", "batch 99/100", "batch 1/100"), None, None),
        (("step 10/64 (epoch 1)",), None, None),  # 64 batches are an epoch
        (("Map: 100%|####| 500/500 [00:01<00:00]",), None, None),
        (("correct 45/100, 3/4 of memory, 11/15/2026, at 1/2.5",), None, None),
        (("rank 0/2", "GPU 1/4"), None, None),
        (("Epoch: [0]  [  40/1200]  eta: 0:05:00",), None, None),
    ],
)
def test_which_counter_counts_the_job(
    tmp_path: Path, lines: tuple[str, ...], word: str | None, total: int | None
) -> None:
    found = of_the_job(counters(tmp_path, *lines), batches=64)

    assert (found and found.word, found and found.total) == (word, total)


def test_a_full_counter_is_the_jobs_if_the_script_has_ended(tmp_path: Path) -> None:
    found = counters(tmp_path, "step 99/100", "step 100/100")

    assert of_the_job(found) is None
    assert of_the_job(found, finished=True) == found[0]


def test_epochs_are_a_counter_of_their_own(tmp_path: Path) -> None:
    found = epochs_in(
        counters(tmp_path, "epoch 1/10", "epoch 2/10", "epoch 3/10", steps=(0, 32, 64))
    )

    assert found is not None
    assert (found.first, found.n, found.total, found.each) == (1, 3, 10, 32.0)


@pytest.mark.parametrize(
    "line",
    [
        "step 40/1200",
        "Step: [  40/ 1200]",
        "iter = 40 of 1200 (loss 1.5)",
        "'step': 40",
        " 3%|#   | 40/1200 [00:10<05:00, 4.0it/s]",
        "episode #40/1200",
    ],
)
def test_a_pattern_finds_its_own_line_and_is_safe(tmp_path: Path, line: str) -> None:
    (found,) = counters(tmp_path, line)
    for n in (7, 40, 1000):
        wider = line.replace("  40", "40").replace("40", str(n), 1)
        match = LinePattern(found.pattern).search(wider)
        assert match, wider
        assert match.groups["n"] == str(n)
        assert match.groups.get("total") in {None, "1200"}


def test_the_end_of_what_was_printed_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "attempt-1.log"
    log.write_text("".join(f"{STAMP.format(second=1)}  line {n}\n" for n in range(20)))

    assert read_printed(log).tail == tuple(f"  line {n}" for n in range(12, 20))
    assert read_printed(tmp_path / "none.log").tail == ()


@pytest.mark.parametrize(
    ("written", "checkpoints", "models"),
    [
        (("c/step-000010.pt", "c/step-000020.pt"), ("c/step-*.pt",), ()),
        (("c/epoch=1-step=64.ckpt", "c/last.ckpt"), ("c/epoch=*-step=*.ckpt", "c/last.ckpt"), ()),
        (
            ("out/checkpoint-20/model.safetensors", "out/checkpoint-20/trainer_state.json"),
            ("out/checkpoint-*",),
            (),
        ),
        (("ds/global_step20/mp_rank_00_model_states.pt", "ds/latest"), ("ds",), ()),  # DeepSpeed
        (("global_step20/states.pt", "latest"), ("global_step*",), ()),
        (("r/checkpoint_2026-11-18_14-52-48.82/s.pt",), ("r/checkpoint_*-*-*_*-*-*.*",), ()),
        (("out/last-state/optimizer.bin",), ("out/last-state",), ()),
        (("c/step-000000120/rank-0.safetensors",), ("c/step-*",), ()),
        (("logs/version_0/checkpoints/a.ckpt",), ("logs/version_*/checkpoints/a.ckpt",), ()),
        (("run7/checkpoints/a.pt",), ("run7/checkpoints/a.pt",), ()),  # run7 was there before
        (("model.pt", "out/best.safetensors"), (), ("model.pt", "out/best.safetensors")),
        (("odd[1]/latest.pt",), ("odd[[]*]/latest.pt",), ()),
        (("ckpt/model.bin", "ckpt/log.txt"), ("ckpt/model.bin",), ()),
        (("out/ckpts/e1.pth.tar", "out/ckpts/config.yaml"), ("out/ckpts/e*.pth.tar",), ()),
        (("log.txt", "metrics.json"), (), ()),
    ],
)
def test_checkpoints_and_models(
    tmp_path: Path, written: tuple[str, ...], checkpoints: tuple[str, ...], models: tuple[str, ...]
) -> None:
    (tmp_path / "run7" / "checkpoints").mkdir(parents=True)

    assert _apart(map(PurePosixPath, written), tmp_path) == (checkpoints, models)


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (("ckpt/step_100.pt", "ckpt/step_200.pt", "ckpt/args.json"), {"ckpt/step_*.pt"}),
        (("out/checkpoint-20/model.safetensors",), {"out/checkpoint-*"}),
        (("model_checkpoints/last.pth",), {"model_checkpoints/last.pth"}),
        (("Snapshots/a.tar", "Snapshots/events.out.tfevents.1.host"), {"Snapshots/a.tar"}),
        (("data/resnet50.pt", "weights/v3.pth", "model.pt"), set()),  # not what a run resumes from
    ],
)
def test_checkpoints_of_earlier_runs_are_found(
    tmp_path: Path, there: tuple[str, ...], found: set[str]
) -> None:
    for name in there:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert set(_there_before(tmp_path)) == found
