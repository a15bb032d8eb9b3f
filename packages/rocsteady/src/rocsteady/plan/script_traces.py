"""What was seen of a script in a trial, besides its pace: what it tells, prints and writes."""

from __future__ import annotations

import glob
import re
from calendar import timegm
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from time import strptime

from rocsteady_train.checkpoints import folder as checkpoint_folder
from rocsteady_train.checkpoints.integrity import MODELS
from rocsteady_train.untrusted_file import read_tail

from rocsteady.hangs.heartbeat_pages import read_resumes
from rocsteady.hangs.output import strip_ansi
from rocsteady.model import BatchSplit, Value
from rocsteady.probe.folders import read_folder_tree
from rocsteady.probe.scratch import Scratch
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.attempt.progress import StepTimes
from rocsteady.run.checkpoints.own_checkpoints import STEP_FOLDER
from rocsteady.run.checkpoints.script_resume import resume_of
from rocsteady.run.job.done_when import POINTER
from rocsteady.run.job.values import Resume
from rocsteady.system.logfile import TEXT_STAMP

SAYS_SO = re.compile(r"(?i)checkpoint|ckpt|last|latest|resume|snapshot|state")
USUAL = re.compile(r"(?i)(?:model_?)?(?:checkpoint|ckpt|chkpt|snapshot)s?")  # names of folders
STATE = MODELS | {".bin", ".tar"}  # suffixes, in such a folder
CLOCK_GRAIN = 1.0  # seconds; a file's time may be this coarse
LOG_LIMIT = 1024 * 1024  # bytes of the end of a log that are looked at
LINE_LIMIT = 2048  # characters
TAIL_LINES = 8  # lines that are kept to be shown
SEVERAL_VALUES = 3  # values of a counter that did not begin again with the next epoch
EPOCH = "epoch"
WORDS = """
    batch chunk document episode epoch example file fold frame game generation image iter iteration
    it match minibatch period replay rollout round sample step task timestep trial update
"""
WORK = frozenset(WORDS.split())
_COUNT = re.compile(
    r"(?P<before>(?P<word>\b[A-Za-z_]{2,24})['\"]?[ \t]{0,3}[:=#]?[ \t]{0,6}[\[(]?[ \t]{0,6}"
    r"|[|\[][ \t]{0,6})"  # a bar
    r"(?P<n>[0-9]{1,12})(?P<between>[ ]?(?:/|of)[ ]{0,6}(?P<total>[0-9]{1,12}))?"
    r"(?![0-9A-Za-z_./:%])"
)
_EPOCH = re.compile(r"(?i)\bepoch")


class LogCounter(Value, frozen=True, kw_only=True):
    """A number that grew while a script printed it."""

    word: str  # what it counts, "epoch"; "": a bar that does not say
    n: int  # in the end
    total: int | None  # None: it was not printed
    pattern: str  # finds it in a line; its groups are n and total
    values: int  # how many different ones there were
    first: int  # and which was the first
    falls: bool  # it began again
    in_epoch: bool  # it stands behind the word epoch
    each: float | None = None  # optimizer steps from one to the next, as far as that could be seen


class Printed(Value, frozen=True, kw_only=True):
    """What a script printed, as far as it tells how far it was."""

    counters: tuple[LogCounter, ...] = ()
    tail: tuple[str, ...] = ()  # the last lines


@dataclass
class _Seen:
    values: list[tuple[float, int]] = field(default_factory=list)  # when each was first printed
    falls: bool = False
    in_epoch: bool = False
    before: str = ""
    between: str = ""


def read_printed(log: Path, steps: Sequence[tuple[float, int]] = ()) -> Printed:
    """Read the kept log of an attempt; ``steps`` says when which optimizer step was made."""
    seen: dict[tuple[str, int | None], _Seen] = {}
    tail: list[str] = []
    for at, line in _lines(log):
        tail = [*tail, line.rstrip()][-TAIL_LINES:]
        for found in _COUNT.finditer(line):
            _take_in(seen, found, at, line)
    counters = tuple(_counter(word, total, one, steps) for (word, total), one in seen.items())
    return Printed(counters=counters, tail=tuple(tail))


def of_the_job(
    counters: Iterable[LogCounter], *, batches: int = 0, finished: bool = False
) -> LogCounter | None:
    """Return the counter that counts the whole job, the finest if there are several.

    ``batches`` is how many there are in an epoch: a counter up to that many is one of an epoch. One
    that is full while the script goes on has counted something else.
    """
    counters = tuple(counters)
    epochs = [one for one in counters if one.word == EPOCH]
    passed = any(one.values > 1 for one in epochs)  # from one epoch to the next
    whole = [
        one
        for one in counters
        if one.word != EPOCH
        and not one.falls
        and (one.total is None or (one.total != batches and (finished or one.n < one.total)))
        and not (epochs and one.word.endswith("batch"))
        and not (one.in_epoch and not (passed and one.values >= SEVERAL_VALUES))
    ]
    return max(whole, key=lambda one: (one.total is not None, one.values), default=None)


def epochs_in(counters: Iterable[LogCounter]) -> LogCounter | None:
    """Return the counter of epochs; one that is printed with how many there are comes first."""
    found = [one for one in counters if one.word == EPOCH and not one.falls]
    return max(found, key=lambda one: (one.total is not None, one.values), default=None)


def _lines(log: Path) -> Iterator[tuple[float, str]]:
    try:
        text = read_tail(log, LOG_LIMIT, follow=False).decode("utf-8", "replace")
    except OSError:
        return
    at = 0.0
    for line in text.splitlines():
        stamp = TEXT_STAMP.match(line)
        if stamp:
            at = timegm(strptime(line[:19], "%Y-%m-%dT%H:%M:%S")) + float(stamp[2])
        text, _ = strip_ansi(line[stamp.end() if stamp else 0 :][:LINE_LIMIT])
        if text.strip():
            yield at, text


def _take_in(
    seen: dict[tuple[str, int | None], _Seen], found: re.Match[str], at: float, line: str
) -> None:
    word = (found["word"] or "").lower()
    word = word if word in WORK else word.removesuffix("s")
    n, total = int(found["n"]), int(found["total"]) if found["total"] else None
    if (word and word not in WORK) or (total is None and not word) or (total or n) < max(n, 1):
        return
    one = seen.setdefault((word, total), _Seen())
    last = one.values[-1][1] if one.values else -1
    one.falls = one.falls or n < last
    one.in_epoch = one.in_epoch or (word != EPOCH and bool(_EPOCH.search(line, 0, found.start())))
    one.before, one.between = found["before"], found["between"] or ""
    if n != last:
        one.values.append((at, n))


def _counter(
    word: str, total: int | None, one: _Seen, steps: Sequence[tuple[float, int]]
) -> LogCounter:
    (first_at, first), (last_at, last) = one.values[0], one.values[-1]
    each = None
    if last > first and steps and not one.falls:
        each = (_step_at(steps, last_at) - _step_at(steps, first_at)) / (last - first)
    return LogCounter(
        word=word,
        n=last,
        total=total,
        pattern=_line_pattern(one),
        values=len(one.values),
        first=first,
        falls=one.falls,
        in_epoch=one.in_epoch,
        each=each,
    )


def _step_at(steps: Sequence[tuple[float, int]], at: float) -> int:
    return max((step for when, step in steps if when <= at), default=0)


def _line_pattern(one: _Seen) -> str:
    """Write a pattern that finds the counter, however wide its numbers are."""
    begins = re.sub(r"(\\?[ \t])+", r"\\s*", re.escape(one.before))
    if not one.between:
        return rf"{begins}(?P<n>\d+)"
    between = re.sub(r" +", " *", one.between.rstrip("0123456789"))
    return rf"{begins}(?P<n>\d+){between}(?P<total>\d+)"


class ScriptTraces(Value, frozen=True, kw_only=True):
    torch: bool = False  # it has loaded torch
    counted: bool = False  # its optimizer steps were seen
    total: int | None = None  # steps in all, as the script told rocsteady
    batch_split: BatchSplit | None = None
    resume: Resume | None = None  # how it goes on by itself, as it told rocsteady
    printed: Printed = Printed()
    checkpoints: tuple[str, ...] = ()  # patterns of what it wrote to go on from
    models: tuple[str, ...] = ()  # what else it wrote that holds weights
    found: tuple[str, ...] = ()  # patterns of checkpoints that were there before


def look_at(  # noqa: PLR0913 - all that there is to look at
    end: AttemptEnd,
    *,
    pages: Path | None,
    log: Path,
    scratch: Scratch,
    step_times: StepTimes,
    since: float,
) -> ScriptTraces:
    counted = any(beat.step for beat in end.heartbeats)
    resumes = read_resumes(pages) if pages else ()
    written = tuple(_written(scratch.folder, since - CLOCK_GRAIN))
    checkpoints, models = _apart(written, scratch.project)
    return ScriptTraces(
        torch=bool(end.heartbeats),
        counted=counted,
        total=next((beat.total for beat in end.heartbeats if beat.total), None),
        batch_split=end.batch_split,
        resume=resume_of(resumes, (scratch.folder, scratch.project)) if resumes else None,
        printed=read_printed(log, step_times.since(since) if counted else ()),
        checkpoints=checkpoints,
        models=models,
        found=tuple(_there_before(scratch.project)),
    )


def _written(folder: Path, since: float) -> Iterator[PurePosixPath]:
    """Yield the files that were written; also behind a link that leads out of the folder."""
    tree = read_folder_tree(folder)
    for path, entry in tree.files():
        if entry.written / 1e9 >= since and not path.startswith("-"):  # it is no option
            yield PurePosixPath(Path(path).as_posix())
    for link in tree.links():
        for path, entry in read_folder_tree(folder / link).files():
            if entry.written / 1e9 >= since:
                yield PurePosixPath(Path(link, path).as_posix())


def _there_before(project: Path) -> Iterator[str]:
    """Yield patterns of files that earlier runs have left where checkpoints usually are."""
    files = (PurePosixPath(Path(path).as_posix()) for path, _ in read_folder_tree(project).files())
    named = (
        path
        for path in files
        if _is_in_usual_folder(path) or _is_checkpoint(path.parent) or path.name == POINTER
    )
    yield from _apart(named, project)[0]


def _is_in_usual_folder(path: PurePosixPath) -> bool:
    usual = any(USUAL.fullmatch(folder) for folder in path.parts[:-1])
    return usual and path.suffix.lower() in STATE


def _apart(
    written: Iterable[PurePosixPath], project: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Separate checkpoints, as patterns, from other files with weights."""
    checkpoints: dict[str, None] = {}
    models: dict[str, None] = {}
    paths = tuple(written)
    with_pointer = {path.parent for path in paths if path.name == POINTER} - {PurePosixPath()}
    for path in paths:
        folder = next((each for each in reversed(path.parents) if _is_checkpoint(each)), None)
        if folder is not None:
            folder = folder.parent if folder.parent in with_pointer else folder
            checkpoints[_pattern(folder, project)] = None
        elif _is_in_usual_folder(path):
            checkpoints[_pattern(path, project)] = None
        elif path.suffix.lower() in MODELS:
            last = PurePosixPath(*path.parts[-2:])
            in_steps = bool(re.search(r"[0-9]", path.stem))
            found = checkpoints if in_steps or SAYS_SO.search(str(last)) else models
            found[_pattern(path, project)] = None
    return tuple(checkpoints), tuple(models)


def _is_checkpoint(folder: PurePosixPath) -> bool:
    ours = checkpoint_folder.step_of(Path(folder)) is not None
    return ours or STEP_FOLDER.fullmatch(folder.name) is not None


def _pattern(path: PurePosixPath, project: Path) -> str:
    """Replace numbers by patterns, except in folders that were there before."""
    words, there = [], project
    for word in path.parts:
        there = there / word
        fixed = there.is_dir() and not _is_checkpoint(PurePosixPath(word))
        words.append(glob.escape(word) if fixed else re.sub(r"[0-9]+", "*", glob.escape(word)))
    return "/".join(words)
