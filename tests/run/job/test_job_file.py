"""The job file: read with errors that name file, key and mistake."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.errors import JobError
from rocsteady.model import Deadline
from rocsteady.run.checkpoints.resume import launch
from rocsteady.run.job.job_file import parse_job, read_job
from rocsteady.run.job.quantities import duration
from rocsteady.run.job.values import (
    DoneWhen,
    FileKind,
    Job,
    Resume,
    Stage,
    Total,
    Variant,
    WantedFile,
)
from rocsteady.system.logfile import LogRules

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "job-file.md"
WHOLE = """
command = ["python", "train.py", "--epochs", "10"]
name = "calm-otter"
total = { epochs = 10 }
deadline = 2025-11-30T18:00:00+01:00
budget = "12.50 USD"
hang_after = "2h 30m"

[resume]
arguments = ["--resume", "{checkpoint}"]
environment = { RESUME_FROM = "{checkpoint}" }
checkpoints = ["checkpoints/*.pt", "/scratch/last.pt"]

[done_when]
steps = 7500
epochs = 10
absent_text = ["HIPBLAS_STATUS_ALLOC_FAILED"]
present_text = ["training complete"]
gpus_busy = 2
within = "1h"
files = [
    { path = "TRAINING/*.pt", kind = "model" },
    { path = "TRAINING/*.json", kind = "json", readable = false },
    { path = "TRAINING/log.txt" },
]

[variants.small]
arguments = ["--embedding", "128"]
without = ["--epochs"]
total = { log = 'episode (?P<n>\\d+)', steps = 300 }
words = "0.7 M parameters"

[[stages]]
name = "smoke"
arguments = ["--epochs", "1"]
variant = "small"
total = { steps = 20 }
done_when = { steps = 20, within = "10m" }
deadline = "1h"

[[stages]]
name = "full"
"""


def test_a_whole_job_file() -> None:
    assert parse_job(WHOLE) == Job(
        command=("python", "train.py", "--epochs", "10"),
        name="calm-otter",
        total=Total(epochs=10),
        deadline=Deadline(at=datetime(2025, 11, 30, 17, tzinfo=UTC)),
        hang_after=timedelta(hours=2, minutes=30),
        resume=Resume(
            arguments=("--resume", "{checkpoint}"),
            environment={"RESUME_FROM": "{checkpoint}"},
            checkpoints=("checkpoints/*.pt", "/scratch/last.pt"),
        ),
        done_when=DoneWhen(
            files=(
                WantedFile(path="TRAINING/*.pt", kind=FileKind.MODEL),
                WantedFile(path="TRAINING/*.json", kind=FileKind.JSON, readable=False),
                WantedFile(path="TRAINING/log.txt"),
            ),
            steps=7500,
            epochs=10,
            absent_text=("HIPBLAS_STATUS_ALLOC_FAILED",),
            present_text=("training complete",),
            gpus_busy=2,
            within=timedelta(hours=1),
        ),
        budget=12.5,
        variants={
            "small": Variant(
                arguments=("--embedding", "128"),
                without=("--epochs",),
                total=Total(log=r"episode (?P<n>\d+)", steps=300),
                words="0.7 M parameters",
            )
        },
        stages=(
            Stage(
                name="smoke",
                arguments=("--epochs", "1"),
                variant="small",
                total=Total(steps=20),
                done_when=DoneWhen(steps=20, within=timedelta(minutes=10)),
                deadline=Deadline(within=timedelta(hours=1)),
            ),
            Stage(name="full"),
        ),
    )


def test_a_job_goes_through_the_journal_as_json_and_comes_back() -> None:
    job = parse_job(WHOLE)

    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(job)), Job) == job


def test_the_reference_has_every_key_and_its_examples_are_jobs() -> None:
    page = PAGE.read_text()
    whole, *parts = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    kinds = (Job, Total, Resume, DoneWhen, WantedFile, Variant, Stage)
    keys = [key for kind in kinds for key in kind.__struct_fields__]
    said = msgspec.to_builtins(parse_job(whole))

    left_out = [key for key in Job.__struct_fields__ if not said[key]]
    assert left_out == ["resume_trainer"]  # which is instead of [resume]
    bare = "command = ['a']\n"
    assert [part for part in parts if parse_job(bare + part) == parse_job(bare)] == []
    assert [key for key in keys if not re.search(rf"`\[*{key}\b", page)] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "rocsteady.toml: command: is missing"),
        ("command = 'python train.py'", "rocsteady.toml: command: expected list, got str"),
        ("command = ['a', 5]", "rocsteady.toml: command[1]: expected str, got int"),
        ("command = []", "rocsteady.toml: command: must name a program"),
        ("command = ['']", "rocsteady.toml: command: must name a program"),
        ('command = ["a\\u0000b"]', "rocsteady.toml: command: contains a zero byte"),
        ("command = ['a']\ncomand = 1", "rocsteady.toml: comand: unknown key"),
        ("command = ['a'", "rocsteady.toml: "),
        ("command = ['a']\nname = 'Calm Otter'", "rocsteady.toml: name: 'Calm Otter' is not a"),
        ("command = ['a']\ntotal = {}", "rocsteady.toml: total: give steps or epochs, or"),
        ("command = ['a']\ntotal = {steps=1,epochs=1}", "rocsteady.toml: total: give steps or epo"),
        ("command = ['a']\ntotal = {steps=0}", "rocsteady.toml: total.steps: must be 1 or more"),
        ("command = ['a']\ntotal = {stpes=1}", "rocsteady.toml: total.stpes: unknown key"),
        ("command = ['a']\nhang_after = 10", "rocsteady.toml: hang_after: 10 is not a duration"),
        ("command = ['a']\nhang_after = '10'", "rocsteady.toml: hang_after: '10' is not a dura"),
        (
            "command = ['a']\nhang_after = '0s'",
            "rocsteady.toml: hang_after: '0s': must be more than",
        ),
        ("command = ['a']\ndeadline = 2025-11-30", "rocsteady.toml: deadline: 2025-11-30 has no"),
        ("command = ['a']\ndeadline = 12:00:00", "rocsteady.toml: deadline: "),
        ("command = ['a']\ndeadline = '2025-13-30T00:00'", "rocsteady.toml: deadline: "),
        ("command = ['a']\ndeadline = 'soon'", "rocsteady.toml: deadline: 'soon' is not a dura"),
        (
            "command = ['a']\n[done_when]\nfiles = [{path='x', kind='onnx'}]",
            "rocsteady.toml: done_when.files[0].kind: invalid enum value 'onnx'",
        ),
        ("command = ['a']\n[done_when]\nfiles = [{}]", "rocsteady.toml: done_when.files[0].path:"),
        (
            "command = ['a']\n[done_when]\ngpus_busy = 0",
            "rocsteady.toml: done_when.gpus_busy: must",
        ),
        ("command = ['a']\n[done_when]\nabsent_text = ['']", "rocsteady.toml: done_when.absent_te"),
        ("command = ['a']\n[done_when]\nwithin = true", "rocsteady.toml: done_when.within: True"),
        ("command = ['a']\ndone_when = 5", "rocsteady.toml: done_when: expected table, got int"),
    ],
)
def test_an_error_names_the_file_the_key_and_the_mistake(text: str, message: str) -> None:
    with pytest.raises(JobError) as raised:
        parse_job(text)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("resume", "message"),
    [
        ("arguments = ['{checkpoint}']", "resume.checkpoints: is missing"),
        ("arguments = ['{checkpoint}']\ncheckpoints = []", "resume.checkpoints: must have at"),
        (
            "arguments = ['{checkpoint}']\ncheckpoints = ['-x*']",
            "resume.checkpoints: '-x*' is empty or could",
        ),
        (
            "arguments = ['--resume={checkpoint}.pt']\ncheckpoints = ['*']",
            "resume: {checkpoint} must be a whole argument or KEY={checkpoint}: '--resume={check",
        ),
        (
            "environment = {'A B' = '{checkpoint}'}\ncheckpoints = ['*']",
            "resume.environment: 'A B' is not the name of a variable",
        ),
    ],
)
def test_how_to_resume_is_checked(resume: str, message: str) -> None:
    with pytest.raises(JobError) as raised:
        parse_job(f"command = ['a']\n[resume]\n{resume}")
    assert str(raised.value).startswith(f"rocsteady.toml: {message}")


@pytest.mark.parametrize(
    ("arguments", "launched"),
    [
        (["--c"], ["--c"]),  # the trainer finds its checkpoint by itself
        ([], []),
        (["resume_from_checkpoint={checkpoint}"], ["resume_from_checkpoint=a.pt"]),
        (["--resume={checkpoint}"], ["--resume=a.pt"]),
    ],
)
def test_a_flag_without_a_path_and_a_key_with_one(
    arguments: list[str], launched: list[str]
) -> None:
    text = f"command = ['train']\n[resume]\narguments = {arguments}\ncheckpoints = ['*.pt']"

    assert list(launch(parse_job(text), Path("a.pt")).command[1:]) == launched


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("total = { log = '(?P<n>' }", "total.log: not a pattern: missing )"),
        (
            "total = { log = 'x (\\d+)', steps = 3 }",
            "total.log: has no group that is named n; writ",
        ),
        (
            "total = { log = 'x (?P<n>\\d+)' }",
            "total.log: has no group named total; also give s",
        ),
        ("total = { log = '(?P<n>.)', steps = 0 }", "total.steps: must be 1 or more"),
        (
            "budget = '25 EUR'",
            "budget: '25 EUR' is not an amount in dollars; write it as 25 or",
        ),
        ("budget = true", "budget: True is not an amount in dollars"),
        ("budget = -1", "budget: -1: must be between 0 and a billion dollars"),
        ("budget = nan", "budget: nan: must be between 0 and a billion dollars"),
        (
            "[variants.small]",
            "variants.small: changes nothing; give arguments, without or environment",
        ),
        ("[variants.'A B']\narguments = ['x']", "variants.A B: 'A B' is not a name"),
        ("[variants.small]\nargument = ['x']", "variants.small.argument: unknown key"),
        ("[variants.small]\narguments = [5]", "variants.small.arguments[0]: expected str, got int"),
        ("[variants.small]\nwithout = ['-v']", "variants.small: the command has no -v"),
        (
            "[variants.small]\narguments=['-d=1']",
            "variants.small: -d is followed by 2 words in the",
        ),
        ("[variants]\nsmall = 5", "variants.small: expected table, got int"),
        ("[variants.s]\nwithout=['1']\ntotal={}", "variants.s.total: give steps or epochs"),
        ("variants = 5", "variants: expected table, got int"),
        ("[[stages]]\nname = 'smoke'", "name: is missing: the runs of stages are named NAME-STAGE"),
        ("name = 'x'\n[[stages]]", "stages[0].name: is missing"),
        ("name = 'x'\n[[stages]]\nname = 'A'", "stages[0].name: 'A' is not a name"),
        (f"name = 'x'\n[[stages]]\nname = '{47 * 'a'}'", "stages[0].name: the name is longer than"),
        (
            "name = 'x'\nstages = [{name='a'},{name='a'}]",
            "stages[1].name: there is a stage 'a' bef",
        ),
        (
            "name = 'x'\nstages = [{name='a',variant='b'}]",
            "stages[0].variant: there is no [variants",
        ),
        ("name = 'x'\nstages = [{name='a',total={}}]", "stages[0].total: give steps or epochs"),
        (
            "name = 'x'\nstages = [{name='a',deadline='soon'}]",
            "stages[0].deadline: 'soon' is not a",
        ),
        (
            "name = 'x'\nstages = [{name='a',arguments=['-d','1']}]",
            "stages[0].arguments: -d is foll",
        ),
        (
            "name = 'x'\nstages = [{name='a',done_when={within=5}}]",
            "stages[0].done_when.within: 5 is not a duration",
        ),
        (
            "name = 'x'\nstages = [{name='a',done_when={epochs=0}}]",
            "stages[0].done_when.epochs: must be 1 or more",
        ),
    ],
)
def test_what_is_measured_or_varied_is_checked(more: str, message: str) -> None:
    with pytest.raises(JobError) as raised:
        parse_job(f"command = ['python', 't.py', '-d', '1', '2']\n{more}")
    assert str(raised.value).startswith(f"rocsteady.toml: {message}")


@pytest.mark.parametrize("budget", ["25", "25.0", "'25 USD'", "'25usd'"])
def test_a_budget_is_in_dollars(budget: str) -> None:
    assert parse_job(f"command = ['a']\nbudget = {budget}").budget == 25.0


def test_what_is_counted_by_the_log_has_the_units_of_the_log() -> None:
    def count(total: str) -> int | None:
        found = parse_job(f"command = ['a']\ntotal = {total}").total
        return found.count if found else None

    assert count("{ steps = 300 }") == 300
    assert count("{ epochs = 10 }") is None
    assert count("{ log = 'epoch (?P<n>\\d+)', epochs = 10 }") == 10
    assert count("{ log = '(?P<n>\\d+)/(?P<total>\\d+)' }") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("2h 30m", timedelta(hours=2.5)),
        ("1.5d", timedelta(hours=36)),
        ("250ms", timedelta(milliseconds=250)),
        (" 1w2d ", timedelta(days=9)),
    ],
)
def test_durations(text: str, expected: timedelta) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize("text", ["", " ", "5", "m", "5 minutes", "-5m", "1e9d", "99999w", "5m x"])
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|must be more than"):
        duration(text)


def test_a_deadline_is_a_moment_here_or_anywhere_or_a_time_from_the_start() -> None:
    def deadline(value: str) -> Deadline | None:
        return parse_job(f"command = ['a']\ndeadline = {value}").deadline

    moment = Deadline(at=datetime(2025, 11, 30, 18, tzinfo=UTC))
    assert deadline("2025-11-30T18:00:00Z") == moment
    assert deadline("'2025-11-30T18:00:00Z'") == moment
    assert deadline("'2025-11-30 19:00:00+01:00'") == moment
    here = datetime(2025, 11, 30, 18).astimezone()
    assert deadline("2025-11-30T18:00:00") == deadline("'2025-11-30 18:00'") == Deadline(at=here)
    assert deadline("'36h'") == Deadline(within=timedelta(hours=36))


@given(st.text(max_size=200))
def test_any_text_is_a_job_or_an_error_of_ours(text: str) -> None:
    with contextlib.suppress(JobError):
        parse_job(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
    | st.sampled_from(["{checkpoint}", "5m", "-x", "calm-otter"]) | st.datetimes() | st.dates(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([
        "command", "name", "total", "deadline", "hang_after", "resume", "done_when", "files",
        "path", "kind", "steps", "epochs", "arguments", "environment", "checkpoints", "within",
        "log", "variant", "without", "words",
    ]), inner, max_size=6),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(list(Job.__struct_fields__)), values))
def test_any_table_is_a_job_or_an_error_of_ours(table: dict[str, object]) -> None:
    text = "\n".join(f"{key} = {toml(value)}" for key, value in table.items() if value is not None)
    try:
        told = f"{parse_job(text).command} in rocsteady.toml: "
    except JobError as error:
        told = str(error)
    assert "rocsteady.toml: " in told


def toml(value: object) -> str:
    """Write a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        inside = (f"{k} = {toml(v)}" for k, v in value.items() if v is not None)
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(v) for v in value if v is not None) + "]"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode().replace("\x7f", "")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


@given(st.text(alphabet="0123456789.smhdw -+e", max_size=12))
def test_any_duration_is_positive_and_bounded(text: str) -> None:
    try:
        found = duration(text)
    except ValueError:
        return
    assert timedelta(0) < found <= timedelta(days=3650)


def test_what_is_not_a_job_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rocsteady.toml"
    with pytest.raises(JobError, match="No such file"):
        read_job(path)
    path.write_bytes(b"command = ['\xff']")
    with pytest.raises(JobError, match="not UTF-8"):
        read_job(path)
    path.write_text("#" * 300_000)
    with pytest.raises(JobError, match="larger than 256 KiB"):
        read_job(path)
    if sys.platform != "win32":
        path.unlink()
        os.mkfifo(path)  # must not wait for a writer
        with pytest.raises(JobError, match="not a regular file"):
            read_job(path)


@pytest.mark.parametrize(
    ("written", "size"),
    [("200MB", 200_000_000), ("1.5 GB", 1_500_000_000), ("64MiB", 64 << 20), ("1tb", 10**12)],
)
def test_a_limit_of_the_log_is_a_size(written: str, size: int) -> None:
    assert parse_job(f"command = ['a']\nlog_limit = '{written}'").log_limit == size


@pytest.mark.parametrize(
    "written", ["200", "'200'", "'0MB'", "'1kB'", "'-1MB'", "true", "'9999TB'"]
)
def test_a_limit_that_is_no_size_is_refused(written: str) -> None:
    with pytest.raises(JobError, match="log_limit: "):
        parse_job(f"command = ['a']\nlog_limit = {written}")


def test_the_log_keeps_the_texts_that_the_job_is_judged_by() -> None:
    job = parse_job("command = ['a']\ndone_when = { absent_text = ['bad'], present_text = ['ok'] }")

    assert job.log_rules == LogRules(limit=200_000_000, keep=("bad", "ok"))
