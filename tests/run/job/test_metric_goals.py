"""Numbers that a job must reach, from files and logs that anyone may have written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rocsteady.errors import JobError
from rocsteady.run.job import metric_goals
from rocsteady.run.job.done_when import Missing, RunEvidence, done, proves
from rocsteady.run.job.job_file import parse_job
from rocsteady.run.job.metric_goals import metric_files, moved_metrics
from rocsteady.run.job.values import DoneWhen, Job

STARTED = 1_700_000_000.0
ACCURACY = "metadata.json:accuracy"


def job(*metrics: str) -> Job:
    return parse_job("\n".join(["command = ['a']", "[done_when.metrics]", *metrics]))


def told(
    folder: Path, wanted: Job, log: str | bytes | None = None, started: float = STARTED
) -> list[str]:
    path = folder / "attempt-1.log"
    if log is not None:
        path.write_bytes(log if isinstance(log, bytes) else log.encode())
    logs = () if log is None else (path,)
    evidence = RunEvidence(folder=folder, started=started, seconds=1, exit_code=0, logs=logs)
    missing = done(wanted, evidence)
    assert {item.key for item in missing} <= {"done_when.metrics"}
    assert not any("\n" in item.what for item in missing)
    return [item.what for item in missing]


def test_the_numbers_of_a_file_are_compared_as_the_job_says(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"accuracy": 0.61, "latency_ms": 5, "n": -3}')
    wanted = job(
        f"'{ACCURACY}' = '>=0.65'",
        "'metadata.json:latency_ms' = '<=5'",
        "'metadata.json:n' = ' < -2.5e0 '",
    )

    assert told(tmp_path, wanted) == ["metadata.json:accuracy: 0.61, required >=0.65"]
    (tmp_path / "metadata.json").write_text('{"accuracy": 0.65, "latency_ms": 5.01, "n": -2}')
    assert told(tmp_path, wanted) == [
        "metadata.json:latency_ms: 5.01, required <=5",
        "metadata.json:n: -2, required  < -2.5e0 ",
    ]


@pytest.mark.parametrize(
    ("key", "number"),
    [("a.b", 1), ("a.c.d", 2), ("x.y", 3), ("history.-1.acc", 5), ("history.0.acc", 4)],
)
def test_a_key_may_lie_deep_and_may_have_dots_itself(tmp_path: Path, key: str, number: int) -> None:
    (tmp_path / "m.json").write_text(
        '{"a": {"b": 1, "c": {"d": 2}}, "x.y": 3, "history": [{"acc": 4}, {"acc": 5}]}'
    )

    assert told(tmp_path, job(f"'m.json:{key}' = '=={number}'")) == []


def test_a_whole_number_of_any_length_is_a_number(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(f'{{"a": {"9" * 400}}}')

    assert told(tmp_path, job("'m.json:a' = '>1'")) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "no such file"),
        ("", "the file is not JSON"),
        ('{"accuracy": 0.9', "the file is not JSON"),
        ("[" * 100_000, "the file is nested too deeply"),
        (f'{{"accuracy": {"9" * 5000}}}', "the file has a number that is too long"),
        ("[0.9]", "the file has no 'accuracy'"),
        ('{"acuracy": 0.9}', "the file has no 'accuracy'"),
        ('{"accuracy": NaN}', "is NaN"),
        ('{"accuracy": Infinity}', "is infinite"),
        ('{"accuracy": 1e999}', "is infinite"),
        ('{"accuracy": "0.9"}', "is a text, not a number"),
        ('{"accuracy": true}', "is true or false, not a number"),
        ('{"accuracy": null}', "is null, not a number"),
        ('{"accuracy": [0.9]}', "is a list, not a number"),
        ('{"accuracy": {"top1": 0.9}}', "is a table, not a number"),
    ],
)
def test_a_number_that_is_not_there_is_not_reached_and_the_line_says_why(
    tmp_path: Path, content: str | None, why: str
) -> None:
    if content is not None:
        (tmp_path / "metadata.json").write_text(content)

    assert told(tmp_path, job(f"'{ACCURACY}' = '>=0'")) == [f"{ACCURACY}: {why} (required: >=0)"]


def test_only_the_newest_file_counts_and_only_if_this_run_wrote_it(tmp_path: Path) -> None:
    for name, accuracy, moment in (("a", 0.9, 10), ("b", 0.5, 20)):
        path = tmp_path / f"{name}.json"
        path.write_text(f'{{"accuracy": {accuracy}}}')
        os.utime(path, (STARTED + moment, STARTED + moment))
    wanted = job("'*.json:accuracy' = '>0.7'")

    assert told(tmp_path, wanted) == ["*.json:accuracy: 0.5, required >0.7"]
    for name in "ab":
        os.utime(tmp_path / f"{name}.json", (STARTED - 9, STARTED - 9))
    assert told(tmp_path, wanted) == [
        "*.json:accuracy: the file's time is from before this run (required: >0.7)"
    ]


def test_a_file_from_before_does_not_count_even_if_its_time_is_in_the_future(
    tmp_path: Path,
) -> None:
    stale, wanted = tmp_path / "stale.json", job("'*.json:accuracy' = '>0.7'")
    stale.write_text('{"accuracy": 0.9}')
    os.utime(stale, (stale.stat().st_ctime + 7200,) * 2)
    time.sleep(0.1)
    started = time.time()

    assert "from before this run" in told(tmp_path, wanted, started=started)[0]
    (tmp_path / "new.json").write_text('{"accuracy": 0.1}')
    assert told(tmp_path, wanted, started=started) == ["*.json:accuracy: 0.1, required >0.7"]


def test_a_link_to_nothing_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").symlink_to("nowhere")

    assert "the file is a link to nothing" in told(tmp_path, job(f"'{ACCURACY}' = '>=0'"))[0]


def test_a_large_whole_number_is_compared_to_the_last_digit(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"accuracy": 9007199254740992}')

    assert told(tmp_path, job(f"'{ACCURACY}' = '==9007199254740992'")) == []
    assert told(tmp_path, job(f"'{ACCURACY}' = '==9007199254740993'")) != []


STAMPED = "2026-11-17T01:40:53.967Z accuracy 0.1000\n"


@pytest.mark.parametrize(
    "source", [r"log:(\d+\.\d+)", "log:([0-9.]+)", r"log:^accuracy ([0-9.]+)", r"log:(\S+)$"]
)
def test_the_times_in_a_log_are_no_numbers_of_the_script(tmp_path: Path, source: str) -> None:
    assert told(tmp_path, job(f"'{source}' = '>=0.65'"), STAMPED) == [
        f"{source}: 0.1, required >=0.65"
    ]


@pytest.mark.parametrize("printed", ["1_000", "\u0663", "1,234", "0x10", "--1", "1e", ""])
def test_what_is_no_plain_number_is_not_read_as_one(tmp_path: Path, printed: str) -> None:
    assert told(tmp_path, job(r"'log:acc(.*)' = '>=0'"), f"acc{printed}\n") != []


def test_a_file_that_is_no_file_or_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, path = job(f"'{ACCURACY}' = '>=0'"), tmp_path / "metadata.json"
    os.mkfifo(path)
    assert "cannot be read: not a regular file" in told(tmp_path, wanted)[0]

    path.unlink()
    monkeypatch.setattr(metric_goals, "FILE_LIMIT", 16)
    path.write_text('{"accuracy": 0.9}')
    assert "cannot be read: larger than 16 bytes" in told(tmp_path, wanted)[0]


LOG = r"'log:val acc(?:uracy)? ([0-9.a-z-]+)' = '>=0.65'"


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ("val accuracy 0.9\nval acc 0.61\nbye\n", "0.61, required >=0.65"),
        ("val accuracy 0.1\n\x1b[32mval acc\x1b[0m 0.66", ""),
        ("val acc 0.1\rval acc 0.7\r", ""),
        ("accuracy 0.9\n", "no line of the log matches (required: >=0.65)"),
        ("", "no line of the log matches (required: >=0.65)"),
        ("val acc 0.9\nval acc nan\n", "is NaN (required: >=0.65)"),
        ("val acc 0.9\nval acc 1.2.3\n", "'1.2.3' in the log is not a number (required: >=0.65)"),
        (b"\xff\xfe val acc 0.9 \xff", ""),
        (
            "val acc 0.9\nrocsteady: 99 bytes are left out here: the log\nthe end\n",
            "no match after the part of the log that log_limit removed (required: >=0.65)",
        ),
        ("rocsteady: 99 bytes are left out here: the log\nval acc 0.9\n", ""),
    ],
)
def test_of_a_log_the_last_match_counts(tmp_path: Path, log: str | bytes, what: str) -> None:
    source = "log:val acc(?:uracy)? ([0-9.a-z-]+)"
    assert told(tmp_path, job(LOG), log) == ([f"{source}: {what}"] if what else [])


def test_without_a_log_nothing_is_reached(tmp_path: Path) -> None:
    assert told(tmp_path, job(LOG))[0].endswith("there is no log (required: >=0.65)")


def test_a_line_across_two_reads_of_a_long_log_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_goals, "LOG_CHUNK", 16)  # a log of gigabytes takes long to write
    for after in range(40):
        log = "val acc 0.1\n" + "x" * 50 + "\r\nval accuracy 0.8125\n" + "." * after
        assert told(tmp_path, job(LOG), log) == []


def test_a_pattern_that_takes_too_long_is_said_and_never_taken_for_a_number(
    tmp_path: Path,
) -> None:
    never_ends = "(?:a|a)" * 20 + "b"
    log = f"acc 0.9\n{'a' * 60}\n"

    (what,) = told(tmp_path, job(f"'log:{never_ends}|acc (.+)' = '>0'"), log)

    assert what.endswith(": the pattern takes too long on this log (required: >0)")


SPELLING = 'is not a comparison; write it as ">=0.65", "<=5", ">0", "<1" or "==3"'


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("'m.json:a' = '=>0.65'", f"m.json:a: '=>0.65' {SPELLING}"),
        ("'m.json:a' = '0.65'", f"m.json:a: '0.65' {SPELLING}"),
        ("'m.json:a' = 0.65", f"m.json:a: '0.65' {SPELLING}"),
        ("'m.json:a' = '>= 65%'", f"m.json:a: '>= 65%' {SPELLING}"),
        ("'m.json:a' = '>=nan'", f"m.json:a: '>=nan' {SPELLING}"),
        ("'m.json:a' = '>=1e999'", f"m.json:a: '>=1e999' {SPELLING}"),
        ("'m.json:a' = ''", f"m.json:a: '' {SPELLING}"),
        ("accuracy = '>1'", 'accuracy: expected "FILE:KEY" or "log:PATTERN"'),
        ("'m.json:' = '>1'", 'm.json:: expected "FILE:KEY" or "log:PATTERN"'),
        ("':a' = '>1'", ':a: expected "FILE:KEY" or "log:PATTERN"'),
        ("'log:a (' = '>1'", "log:a (: not a pattern: "),
        ("'log:acc [0-9]+' = '>1'", "log:acc [0-9]+: has 0 groups, and needs one for the number;"),
        ('"log:(\\\\d+) (\\\\d+)" = ">1"', r"log:(\d+) (\d+): has 2 groups, and needs one"),
    ],
)
def test_a_mistake_is_told_with_its_line(line: str, problem: str) -> None:
    where = "4" if line[0] in "'\"" else ""

    with pytest.raises(JobError) as caught:
        job("# a comment", line)

    begin = f"rocsteady.toml{':' if where else ''}{where}: done_when.metrics.{problem}"
    assert str(caught.value).startswith(begin)


def test_a_mistake_in_a_stage_names_the_stage_and_a_list_is_no_table() -> None:
    with pytest.raises(JobError) as caught:
        parse_job(
            "command = ['a']\nname = 'x'\n[[stages]]\nname = 'y'\n"
            "done_when = { metrics = { 'a.json:b' = '>>1' } }"
        )
    assert str(caught.value).startswith(
        "rocsteady.toml:5: stages[0].done_when.metrics.a.json:b: '>>1' is not a comparison"
    )
    with pytest.raises(JobError, match=r"done_when\.metrics: expected a table such as"):
        parse_job("command = ['a']\n[done_when]\nmetrics = ['a.json:b >= 1']")


def test_a_number_that_was_reached_proves_that_the_job_is_done() -> None:
    assert proves(DoneWhen(metrics={ACCURACY: ">0"}))


def test_files_are_named_and_moved_and_the_log_stays() -> None:
    metrics = {"out/m.json:a": ">1", "out/m.json:b": ">2", "log:c ([0-9]+)": ">3"}

    assert metric_files(metrics) == ("out/m.json",)
    assert moved_metrics(metrics, "/s/{}".format) == {
        "/s/out/m.json:a": ">1",
        "/s/out/m.json:b": ">2",
        "log:c ([0-9]+)": ">3",
    }


def test_what_is_missing_has_the_key_of_the_job_file(tmp_path: Path) -> None:
    evidence = RunEvidence(folder=tmp_path, started=STARTED, seconds=1, exit_code=0)

    assert done(job(f"'{ACCURACY}' = '>0'"), evidence) == (
        Missing(key="done_when.metrics", what=f"{ACCURACY}: no such file (required: >0)"),
    )
