"""From what was seen to a job file: how much work, how it goes on, and a text that can be read."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rocsteady.hangs.heartbeat_pages import Size
from rocsteady.model import LoaderFacts, Strategy
from rocsteady.plan.job_file_text import Draft, Work, going_on, how_much, job_text, seen
from rocsteady.plan.script_traces import LogCounter, Printed, ScriptTraces
from rocsteady.plan.trials import TrialResult
from rocsteady.plan.values import Pace
from rocsteady.run.checkpoints.resume_detection import ResumeMethod, ResumeSign, detect_resume
from rocsteady.run.checkpoints.script_facts import ScriptFacts, read_facts
from rocsteady.run.job.job_file import parse_job
from rocsteady.run.job.values import DoneWhen, FileKind, Job, Resume, Total, WantedFile

if TYPE_CHECKING:
    from tests.conftest import Expected

COMMAND = ("python", "train.py")
NOTHING = ScriptFacts(name="")
PACE = Pace(steps=400, seconds=10.0, rate=40.0, low=38.0, high=42.0, starting=2.0, memory=3 << 28)
SIZE = Size(parameters=1234567, batch=64, batches=100)
COUNTER = LogCounter(
    word="step",
    n=400,
    total=7500,
    pattern=r"step\s*(?P<n>\d+)/(?P<total>\d+)",
    values=9,
    first=4,
    falls=False,
    in_epoch=False,
    each=1.0,
)
FOLDS = replace(COUNTER, word="fold", n=3, total=8, first=1, values=3, each=99.6)
EPOCH = replace(COUNTER, word="epoch", n=4, total=None, pattern=r"epoch\s*(?P<n>\d+)", first=1)


def one(
    *counters: LogCounter, finished: bool = False, size: Size | None = SIZE, **seen: object
) -> TrialResult:
    """Make what came of a short run in which steps were counted."""
    watched = ScriptTraces(**{"torch": True, "counted": True, **seen})  # type: ignore[arg-type]
    return TrialResult(
        strategy=Strategy(),
        pace=PACE,
        step=400,
        seconds=12.0,
        finished=finished,
        size=size,
        watched=replace(watched, printed=Printed(counters=counters)),
    )


def script(tmp_path: Path, text: str) -> ScriptFacts:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(text))
    return read_facts(path)


@pytest.mark.parametrize(
    ("words", "tried", "total", "sure"),
    [
        ((), one(total=900), Total(steps=900), True),
        ((), one(finished=True), Total(steps=400), True),
        (("--max-steps", "800"), one(COUNTER), Total(steps=800), True),
        ((), one(COUNTER), Total(steps=7500), True),
        ((), one(replace(COUNTER, word="episode", each=4.0)), Total(log=COUNTER.pattern), True),
        ((), one(FOLDS), Total(steps=797), False),
        (("--epochs", "10"), one(replace(EPOCH, each=101.0)), Total(steps=1000), True),
        (("--epochs", "10"), one(), Total(steps=1000), True),
        (("--epochs", "10"), one(replace(EPOCH, each=25.2)), Total(steps=250), False),
        ((), one(replace(EPOCH, total=10, each=None)), Total(steps=1000), True),
        ((), one(replace(EPOCH, total=10, first=0, each=None)), Total(steps=1000), False),
        ((), one(replace(EPOCH, total=10), size=None), Total(log=EPOCH.pattern), True),
        (("--epochs", "9"), one(EPOCH, size=None), Total(log=EPOCH.pattern, epochs=9), True),
        (("--epochs", "9"), one(size=None), Total(epochs=9), True),
        ((), one(), None, False),
    ],
)  # fmt: skip
def test_how_much_work_it_is(
    tmp_path: Path, words: tuple[str, ...], tried: TrialResult, total: Total | None, *, sure: bool
) -> None:
    found = how_much((*COMMAND, *words), tried, NOTHING, tmp_path)

    assert (found.total, found.sure) == (total, sure), found.why


@pytest.mark.parametrize(
    ("words", "counter", "total"),
    [
        ((), COUNTER, Total(log=COUNTER.pattern)),
        (("--epochs", "9"), EPOCH, Total(log=EPOCH.pattern, epochs=9)),
        (("--games=50",), replace(EPOCH, word="game"), Total(log=EPOCH.pattern, steps=50)),
        ((), EPOCH, None),
    ],
)
def test_without_torch_what_is_printed_counts(
    tmp_path: Path, words: tuple[str, ...], counter: LogCounter, total: Total | None
) -> None:
    tried = one(counter, size=None, torch=False, counted=False)

    assert how_much((*COMMAND, *words), tried, NOTHING, tmp_path).total == total


def test_a_trainer_that_counts_epochs_from_0_has_one_more(tmp_path: Path) -> None:
    facts = script(tmp_path, "pl.Trainer(max_epochs=60)")
    printed = replace(EPOCH, n=30, total=59, each=None)

    assert how_much(COMMAND, one(printed), facts, tmp_path) == Work(
        total=Total(steps=6000),
        why="60 epochs of 100 batches, from epoch 30/59 in its output, from 0, and max_epochs in"
        " train.py, line 1, if each batch is one optimizer step.",
        sure=True,
    )


def test_what_ended_by_itself_may_have_gone_on_from_an_earlier_run(tmp_path: Path) -> None:
    (tmp_path / "step-10.pt").write_text("")
    tried = one(COUNTER, finished=True, checkpoints=("step-*.pt",))

    assert how_much(COMMAND, tried, NOTHING, tmp_path).total == Total(steps=7500)


OPTION = Resume(arguments=("--resume", "{checkpoint}"), checkpoints=("c/*.pt",))
FLAG = Resume(arguments=("--resume",), checkpoints=("c/*.pt",))
UNKNOWN = ResumeMethod(how=ResumeSign.UNKNOWN)


@pytest.mark.parametrize(
    ("text", "written", "resume"),
    [
        ('p.add_argument("--resume")', ("c/*.pt",), OPTION),
        ('p.add_argument("--resume", action="store_true")', ("c/*.pt",), FLAG),
        ("t.train(resume_from_checkpoint=last)", ("c/*.pt",), replace(FLAG, arguments=())),
        ('p.add_argument("--resume")', (), None),
        ("pass", ("c/*.pt",), None),
    ],
)
def test_how_it_goes_on(
    tmp_path: Path, text: str, written: tuple[str, ...], resume: Resume | None
) -> None:
    found = going_on(one(checkpoints=written), script(tmp_path, text), UNKNOWN)

    assert found.resume == resume
    assert ("No checkpoint was written in the 12 s" in found.why) == (not written)


def test_one_that_tells_rocsteady_needs_nothing_else() -> None:
    assert going_on(one(resume=FLAG), NOTHING, UNKNOWN).resume == FLAG


@pytest.mark.parametrize(
    ("typed", "arguments", "checkpoints"),
    [
        ("trl sft --output_dir o", ("--resume_from_checkpoint", "{checkpoint}"), "o/checkpoint-*"),
        (
            "llamafactory-cli train c.yml",
            ("resume_from_checkpoint={checkpoint}",),
            "x/checkpoint-*",
        ),
        ("nnUNetv2_train 1 2d 0", ("--c",), "r/checkpoint_latest.pth"),
        ("python run.py c.yml", (), "r/checkpoint_latest.pth"),
    ],
)
def test_a_trainers_own_way_is_written_as_it_is_typed(
    tmp_path: Path, typed: str, arguments: tuple[str, ...], checkpoints: str
) -> None:
    (tmp_path / "c.yml").write_text("output_dir: x\n")
    method = detect_resume(typed.split(), tmp_path)
    seen = one() if method.checkpoints else one(checkpoints=("r/checkpoint_best.pth", checkpoints))
    found = going_on(seen, NOTHING, method)
    draft = Draft(command=("x",), day="", seen=(), work=Work(), going_on=found)

    wanted = Resume(arguments=arguments, checkpoints=(checkpoints,))
    assert parse_job(job_text(draft)).resume == found.resume == wanted


def test_what_run_finds_by_itself_is_not_said_to_be_missing(tmp_path: Path) -> None:
    found = going_on(one(), NOTHING, detect_resume(("nnUNetv2_train", "1", "2d", "0"), tmp_path))
    draft = Draft(command=("x",), day="", seen=(), work=Work(), going_on=found)

    assert found.resume is None
    assert found.found_by_run
    assert "cannot resume" not in job_text(draft)
    assert 'arguments = ["--c"]' in job_text(draft)


def test_the_example_is_the_option_that_was_found(tmp_path: Path) -> None:
    text = 'p.add_argument("--resume_from_checkpoint")'
    found = going_on(one(), script(tmp_path, text), UNKNOWN)

    assert found.resume is None
    assert not found.found_by_run
    assert found.example is not None
    assert found.example.arguments == ("--resume_from_checkpoint", "{checkpoint}")


def test_what_prevents_a_trainer_from_resuming_is_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text("output_dir: x\noverwrite_output_dir: true\n")
    method = detect_resume(("llamafactory-cli", "train", "c.yml"), tmp_path)
    found = going_on(one(), NOTHING, method)

    assert (found.resume, found.example) == (None, None)
    assert "c.yml:2" in found.why


def test_what_to_write_and_the_setting_that_needs_no_edit_are_in_the_file(tmp_path: Path) -> None:
    text = "from transformers import Trainer\ntrainer = Trainer()\ntrainer.train()\n"
    (tmp_path / "train.py").write_text(text)
    found = going_on(one(), NOTHING, detect_resume(("python", "train.py"), tmp_path))

    draft = Draft(command=COMMAND, day="2026-11-15", seen=(), work=Work(why="x"), going_on=found)
    lines = job_text(draft).splitlines()

    first = lines.index("# Write instead:")
    assert "# resume_trainer = true" in lines[first:]
    assert any("trainer.train(resume_from_checkpoint=" in line for line in lines[first:])
    assert "# Then: rocsteady init --force." in lines[first:]


def test_a_job_file_says_what_each_line_rests_on(expected: Expected) -> None:
    loader = LoaderFacts(loaders=2, workers=4, context="fork", pickles=None, main_guarded=None)
    tried = replace(one(COUNTER, checkpoints=("c/*.pt",), models=("m.pt",)), loader=loader)
    draft = Draft(
        command=COMMAND,
        day="2026-11-15",
        seen=tuple(seen(tried)),
        work=Work(total=Total(log=COUNTER.pattern), why="The script printed step 400/7500."),
        going_on=going_on(tried, ScriptFacts(name="train.py", goes_on=7), UNKNOWN),
        models=("m.pt",),
    )

    expected(Path(__file__).parent / "expected" / "init.toml", job_text(draft))


@given(
    words=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))),
    path=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
    why=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_whatever_a_command_and_a_file_are_called_the_text_can_be_read(
    words: list[str], path: str, why: str
) -> None:
    draft = Draft(
        command=("python", *words),
        day="2026-11-15",
        seen=(why,),
        work=Work(why=why),
        going_on=going_on(one(), NOTHING, UNKNOWN),
        models=(path,),
    )

    assert parse_job(job_text(draft)) == Job(
        command=("python", *words),
        done_when=DoneWhen(files=(WantedFile(path=path, kind=FileKind.MODEL),)),
    )


@pytest.mark.parametrize(
    ("step", "saves", "finished", "at"),
    [(400, 4, False, 101), (400, 1, True, 400), (90, 0, True, 50)],
)
def test_a_drill_kills_it_after_it_has_saved(
    step: int, saves: int, at: int, *, finished: bool
) -> None:
    seen = replace(one(finished=finished, checkpoints=("c/*.pt",)), step=step, saves=saves)
    found = going_on(seen, NOTHING, ResumeMethod(how=ResumeSign.COMMAND, arguments=("--resume",)))

    text = job_text(
        Draft(command=COMMAND, day="", seen=(), work=Work(why=""), going_on=found, models=())
    )

    assert f"rocsteady drill --faults kill@{at}\n" in " ".join(text.split("\n# ")) + "\n"
