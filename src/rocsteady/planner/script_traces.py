"""What was seen of a script in a trial, besides its pace: what it tells, prints and writes."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from rocsteady import checkpoint_folder
from rocsteady.attempts.attempt_end import AttemptEnd
from rocsteady.attempts.step_times import StepTimes
from rocsteady.evidence.heartbeat_pages import BatchSplit, read_resumes
from rocsteady.file_integrity import MODELS
from rocsteady.job.values import Resume
from rocsteady.model import Value
from rocsteady.planner.log_counters import Printed, read_printed
from rocsteady.sandbox.folder_tree import read_folder_tree
from rocsteady.sandbox.scratch import Scratch
from rocsteady.supervisor.script_resume import resume_of

FOLDERS = re.compile(r"(?:checkpoint|ckpt|step|epoch|iter|global_step)[-_=]?[0-9]+")
SAYS_SO = re.compile(r"(?i)checkpoint|ckpt|last|latest|resume|snapshot|state")
USUAL = re.compile(r"(?i)(?:model_?)?(?:checkpoint|ckpt|chkpt|snapshot)s?")  # names of folders
STATE = MODELS | {".bin", ".tar"}  # suffixes, in such a folder
CLOCK_GRAIN = 1.0  # seconds; a file's time may be this coarse


class ScriptTraces(Value, frozen=True, kw_only=True):
    """What was seen of one attempt."""

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
    marks: StepTimes,
    since: float,
) -> ScriptTraces:
    """Put together what is seen of an attempt that has just ended."""
    counted = any(beat.step for beat in end.heartbeats)
    told = read_resumes(pages) if pages else ()
    written = tuple(_written(scratch.folder, since - CLOCK_GRAIN))
    checkpoints, models = _apart(written, scratch.project)
    return ScriptTraces(
        torch=bool(end.heartbeats),
        counted=counted,
        total=next((beat.total for beat in end.heartbeats if beat.total), None),
        batch_split=end.batch_split,
        resume=resume_of(told, (scratch.folder, scratch.project)) if told else None,
        printed=read_printed(log, marks.since(since) if counted else ()),
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
    named = (path for path in files if _is_in_usual_folder(path) or _is_checkpoint(path.parent))
    yield from _apart(named, project)[0]


def _is_in_usual_folder(path: PurePosixPath) -> bool:
    usual = any(USUAL.fullmatch(folder) for folder in path.parts[:-1])
    return usual and path.suffix.lower() in STATE


def _apart(
    written: Iterable[PurePosixPath], project: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tell checkpoints, as patterns, from other files with weights."""
    checkpoints: dict[str, None] = {}
    models: dict[str, None] = {}
    for path in written:
        folder = next((each for each in reversed(path.parents) if _is_checkpoint(each)), None)
        if folder is not None:
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
    return ours or FOLDERS.fullmatch(folder.name) is not None


def _pattern(path: PurePosixPath, project: Path) -> str:
    """Let numbers be any number, but for those in folders that were there before."""
    words, there = [], project
    for word in path.parts:
        there = there / word
        fixed = there.is_dir() and not _is_checkpoint(PurePosixPath(word))
        words.append(glob.escape(word) if fixed else re.sub(r"[0-9]+", "*", glob.escape(word)))
    return "/".join(words)
