"""Done means done: field notes B and D as job files, each criterion violated in turn and named."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from rocsteady.run.job import done_when as done_module
from rocsteady.run.job.done_when import RunEvidence, missing
from rocsteady.run.job.job_file import parse_job, read_job
from rocsteady.run.job.values import Job

HERE = Path(__file__).parent
STARTED = 1_700_000_000.0


class Training:
    """What a run of B's or D's job leaves behind when all goes well."""

    def __init__(self, folder: Path, note: str) -> None:
        self.job = read_job(HERE / f"job_{note}.toml").job
        self.output = folder / "TRAINING"
        self.output.mkdir()
        self.model, self.metadata = self.output / "m.pt", self.output / "m_metadata.json"
        self.log = folder / "log"
        with zipfile.ZipFile(self.model, "w") as archive:
            archive.writestr("m/data.pkl", b"\x80\x02}q\x00.")
            archive.writestr("m/data/0", bytes(range(256)) * 64)
        self.metadata.write_text('{"features": 54, "loss": NaN}')
        self.log.write_text("epoch 3/3 loss: 0.2\nTraining completed successfully\n")
        self.evidence = RunEvidence(
            folder=folder,
            started=STARTED,
            seconds=1800,
            epochs=int(self.job.command[self.job.command.index("--epochs") + 1]),
            gpus_busy=2,
            logs=(self.log,),
        )
        self.wrote_at(STARTED + 1700)

    def wrote_at(self, moment: float) -> None:
        for path in (self.model, self.metadata):
            os.utime(path, (moment, moment))

    def missing(self, **changes: object) -> tuple[tuple[str, str], ...]:
        return tuple(missing(self.job, replace(self.evidence, **changes)))


Violation = Callable[[Training], dict[str, object]]


def prints(text: str) -> Violation:
    def violate(training: Training) -> dict[str, object]:
        training.log.write_text(training.log.read_text() + text)
        return {}

    return violate


def forgets_to_say_so(training: Training) -> dict[str, object]:
    training.log.write_text("epoch 3/3\n")
    return {}


def writes_no_model(training: Training) -> dict[str, object]:
    training.model.unlink()
    return {}


def writes_no_metadata(training: Training) -> dict[str, object]:
    training.metadata.unlink()
    return {}


def leaves_the_files_of_an_earlier_run(training: Training) -> dict[str, object]:
    training.wrote_at(STARTED - 10)
    return {}


def cuts(name: str) -> Violation:
    def violate(training: Training) -> dict[str, object]:
        path: Path = getattr(training, name)
        path.write_bytes(path.read_bytes()[:-5])
        return {}

    return violate


MODEL, METADATA = "done_when.files[0]", "done_when.files[1]"
BOTH = [
    (writes_no_model, [(MODEL, "no file TRAINING/*.pt")]),
    (cuts("model"), [(MODEL, "TRAINING/m.pt is cut short or damaged")]),
    (
        leaves_the_files_of_an_earlier_run,
        [
            (MODEL, "TRAINING/m.pt is from before this run"),
            (METADATA, "TRAINING/m_metadata.json is from before this run"),
        ],
    ),
    (cuts("metadata"), [(METADATA, "TRAINING/m_metadata.json is not JSON")]),
]
ONLY_B = [
    (
        prints("HIPBLAS_STATUS_ALLOC_FAILED when calling hipblasCreate(handle)\n"),
        [("done_when.absent_text", "the log has 'HIPBLAS_STATUS_ALLOC_FAILED'")],
    ),
    (prints("loss: nan\n"), [("done_when.absent_text", "the log has 'loss: nan'")]),
    (
        lambda _: {"epochs": 2},
        [("done_when.epochs", "3 epochs required, 2 reached")],
    ),
    (
        lambda _: {"epochs": None},
        [("done_when.epochs", "3 epochs required; the number reached is unknown")],
    ),
    (
        lambda _: {"gpus_busy": 1},
        [("done_when.gpus_busy", "2 GPUs busy required, 1 reached")],
    ),
    (
        forgets_to_say_so,
        [("done_when.present_text", "the log does not contain 'Training completed")],
    ),
    (writes_no_metadata, [(METADATA, "no file TRAINING/*.json")]),
]
ONLY_D = [
    (
        lambda _: {"epochs": 0},
        [("done_when.epochs", "1 epochs required, 0 reached")],
    ),
    (
        lambda _: {"seconds": 3700},
        [("done_when.within", "took 1:01:40, required within 1:00:00")],
    ),
    (writes_no_metadata, [(METADATA, "no file TRAINING/*_metadata.json")]),
]


@pytest.mark.parametrize("note", ["b", "d"])
def test_a_job_that_has_everything_is_done(tmp_path: Path, note: str) -> None:
    assert Training(tmp_path, note).missing() == ()


@pytest.mark.parametrize(
    ("note", "violate", "expected"),
    [("b", *case) for case in (*BOTH, *ONLY_B)] + [("d", *case) for case in (*BOTH, *ONLY_D)],
)
def test_each_criterion_that_is_violated_is_named_and_no_other(
    tmp_path: Path, note: str, violate: Violation, expected: list[tuple[str, str]]
) -> None:
    training = Training(tmp_path, note)
    changes = violate(training)

    found = training.missing(**changes)

    assert [key for key, _ in found] == [key for key, _ in expected]
    for (_, what), (_, wanted) in zip(found, expected, strict=True):
        assert what.startswith(wanted)


def job(done_when: str) -> Job:
    return parse_job(f"command = ['a']\n[done_when]\n{done_when}")


def evidence(folder: Path, **options: object) -> RunEvidence:
    fields = {"folder": folder, "started": STARTED, "seconds": 1}
    return RunEvidence(**{**fields, **options})  # type: ignore[arg-type] # as the test says


def test_exit_0_is_enough_for_a_job_that_asks_for_nothing(tmp_path: Path) -> None:
    assert [*missing(parse_job("command = ['a']"), evidence(tmp_path))] == []


def test_one_new_and_readable_file_of_many_is_enough(tmp_path: Path) -> None:
    for number, text in enumerate(("{", "{}", "old")):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        os.utime(path, (STARTED + 10 - number * 6, STARTED + 10 - number * 6))
    wanted = job("files = [{path = '*.json', kind = 'json'}]")

    assert [*missing(wanted, evidence(tmp_path))] == []
    (tmp_path / "1.json").unlink()
    ((_, what),) = missing(wanted, evidence(tmp_path))
    assert what.startswith("0.json is not JSON")


def test_patterns_may_be_absolute_and_deep(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "model.bin"
    deep.parent.mkdir(parents=True)
    deep.write_bytes(b"x")

    for pattern in (str(tmp_path / "**" / "*.bin"), "**/model.bin", "a/b"):
        wanted = job(f"files = [{{path = '{pattern}'}}]")
        assert [*missing(wanted, evidence(tmp_path))] == []


def test_a_text_across_two_reads_of_a_long_log_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(done_module, "LOG_CHUNK", 16)  # a log of gigabytes takes long to write
    log = tmp_path / "log"
    wanted = job("absent_text = ['out of memory', 'x']")

    for before in range(40):
        log.write_bytes(b"." * before + b"out of memory" + b"." * 20)
        assert [what for _, what in missing(wanted, evidence(tmp_path, logs=(log,)))] == [
            "the log has 'out of memory'"
        ]


def test_a_log_that_is_not_there_is_not_taken_for_a_clean_one(tmp_path: Path) -> None:
    wanted = job("absent_text = ['error']\npresent_text = ['done']")

    assert [what for _, what in missing(wanted, evidence(tmp_path))] == ["there is no log"] * 2
    gone = evidence(tmp_path, logs=(tmp_path / "gone",))
    assert {what for _, what in missing(wanted, gone)} == {
        "the log cannot be read: No such file or directory"
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [("-17T", False), ("967Z loss", False), ("loss 0.1", True), ("0.1\nepoch 2", True)],
)
def test_the_times_in_a_log_are_no_text_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, *, found: bool
) -> None:
    log, stamp = tmp_path / "log", "2026-11-17T01:40:53.967Z "
    log.write_text(f"{stamp}loss 0.1\n{stamp}epoch 2\n{stamp}an open line")
    for chunk in (40, 60, 1024):
        monkeypatch.setattr(done_module, "LOG_CHUNK", chunk)
        assert done_module._texts_in(log, [text]) == ({text} if found else set())
        assert done_module._texts_in(log, ["an open line"]) == {"an open line"}
