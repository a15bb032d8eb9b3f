"""The checkpoints of a job: which a run may use, how far each is, and how to start from one.

Its account lists the checkpoints that are there when a run begins, so that they can be told from
its own later, also by a supervisor that takes the run over, and whatever the clock does meanwhile.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rocsteady_train.checkpoints.integrity import pickles_in

from rocsteady.errors import JobError
from rocsteady.model import Value
from rocsteady.run.job.done_when import kind_of, matches, pointed_to, what_is_wrong
from rocsteady.run.job.values import CHECKPOINT, Job, Resume
from rocsteady.typed_values import read_json

NANOSECONDS = 1e9
STEP, EPOCH = "step", "epoch"
HIGHEST = 10**15
ELSEWHERE = frozenset(["apptainer", "docker", "enroot", "nerdctl", "podman", "singularity", "ssh"])
STEP_KEYS = ("global_step", "step", "iter_num", "iteration")
PICKLE_LIMIT = 1 << 20  # bytes of a pickle that are read
TRAINER_STATE = "trainer_state.json"  # as the Hugging Face Trainer writes
TRAINER_STATE_LIMIT = 64 << 20  # bytes; it has every line of the log
_BEFORE = r"(?:^|[^a-z])"
_NAMED = (
    (STEP, re.compile(_BEFORE + r"(?:global[-_]?)?(?:steps?|iter(?:ation)?s?)[-_=]?([0-9]+)")),
    (STEP, re.compile(r"^checkpoint-([0-9]+)$")),  # of the Hugging Face Trainer
    (EPOCH, re.compile(_BEFORE + r"epochs?[-_=]?([0-9]+)")),
)


class Stamp(Value, frozen=True, kw_only=True):
    """A checkpoint as it was found: one that was written again has another stamp."""

    path: str  # as its pattern is written
    written: int  # nanoseconds since 1970
    size: int


class Origin(Value, frozen=True, kw_only=True):
    """What was there when a run began, and what of it the run must not use."""

    before: frozenset[Stamp] = frozenset()
    foreign: frozenset[Stamp] = frozenset()
    runs: int = 0  # keys of the journal's runs up to which this accounts for what they wrote


def stamp(folder: Path, path: Path) -> Stamp | None:
    """Return a checkpoint's stamp; None if it is gone. A folder has that of its newest file."""
    place = folder / path
    try:
        facts = [place.stat()]
        if place.is_dir():
            facts += [entry.stat() for entry in place.iterdir()]
    except OSError:
        return None
    newest = max(fact.st_mtime_ns for fact in facts)
    return Stamp(path=str(path), written=newest, size=sum(fact.st_size for fact in facts))


def find_checkpoints(resume: Resume | None, folder: Path) -> frozenset[Stamp]:
    """Return the checkpoints that are there, whole or not."""
    if resume is None:
        return frozenset()
    paths = {path for pattern in resume.checkpoints for path in matches(folder, pattern)}
    return frozenset(each for path in paths if (each := stamp(folder, path)) is not None)


class CheckpointNumber(Value, frozen=True, kw_only=True):
    """How many steps, or epochs, a checkpoint says that it has."""

    value: int
    unit: str = STEP


def checkpoint_number(folder: Path, path: Path) -> CheckpointNumber | None:
    """Read it from the checkpoint's name, its folder's, or what is in it; nothing is unpickled.

    The name of the job's own ``folder`` says nothing.
    """
    if pointed := pointed_to(folder / path):
        path /= pointed.name
    name = path.stem if path.suffix and not (folder / path).is_dir() else path.name
    named = _number_in(name) or _number_in(path.parent.name)
    if named is not None and named.unit == STEP:
        return named
    return _in_trainer_state(folder / path / TRAINER_STATE) or _in_saved(folder / path) or named


def _number_in(name: str) -> CheckpointNumber | None:
    for unit, pattern in _NAMED:
        if (match := pattern.search(name.lower())) and int(match.group(1)) < HIGHEST:
            return CheckpointNumber(value=int(match.group(1)), unit=unit)
    return None


def _in_trainer_state(path: Path) -> CheckpointNumber | None:
    state = read_json(path, _TrainerState, TRAINER_STATE_LIMIT)
    known = state is not None and 0 <= state.global_step < HIGHEST
    return CheckpointNumber(value=state.global_step) if state and known else None


def _in_saved(path: Path) -> CheckpointNumber | None:
    """Return the number that follows a key such as global_step in a file that torch.save wrote."""
    content = next(pickles_in(path, PICKLE_LIMIT), b"")
    try:
        last: object = None
        seen: dict[object, object] = {}  # a text that occurs again is named by its number
        for operation, argument, _ in pickletools.genops(content):
            if operation.name in ("BINPUT", "LONG_BINPUT"):
                seen[argument] = last
            elif operation.name in ("BININT", "BININT1", "BININT2") and last in STEP_KEYS:
                number = int(argument or 0)
                return CheckpointNumber(value=number) if number >= 0 else None
            else:
                again = operation.name in ("BINGET", "LONG_BINGET")
                last = seen.get(argument) if again else argument
    except ValueError:  # cut off, or damaged
        return None
    return None


class _TrainerState(Value, frozen=True):
    global_step: int


class Launch(Value, frozen=True, kw_only=True):
    """What to start: arguments, and variables to be set on top of the environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


class Checkpoint(Value, frozen=True, kw_only=True):
    """What to go on from, and newer ones that were passed over because they are broken."""

    path: Path  # as the pattern is written: relative to the job's folder, or absolute
    written: float
    passed_over: tuple[str, ...] = ()  # each with what is wrong with it


def whole_checkpoints(  # noqa: PLR0913 - most have a default
    job: Job,
    folder: Path,
    origin: Origin | None = None,
    avoid: Collection[tuple[str, float]] = (),
    judged: dict[Stamp, str] | None = None,
    *,
    complete: Sequence[str] = (),
) -> Iterator[Checkpoint]:
    """Yield checkpoints that are whole, the newest first: the run's own, then those from before it.

    Left out are those that the run must not use, and those that are to be avoided. ``judged`` keeps
    what was found wrong with each, since reading a large one takes long. ``complete``: see
    ``unfinished``.
    """
    judged = {} if judged is None else judged
    origin = origin or Origin()
    usable = find_checkpoints(job.resume, folder) - origin.foreign
    found = sorted(usable, key=lambda each: _age(each, origin), reverse=True)
    passed_over: list[str] = []
    for each in found:
        path, when = Path(each.path), each.written / NANOSECONDS
        if each not in judged:
            wrong = what_is_wrong(folder / path, kind_of(path))
            judged[each] = wrong or unfinished(folder / path, complete)
        wrong = judged[each]
        if not wrong and (str(path), when) in avoid:
            wrong = "did not lead on"
        if wrong:
            passed_over.append(f"{path} {wrong}")
        else:
            yield Checkpoint(path=path, written=when, passed_over=tuple(passed_over))


def unfinished(place: Path, complete: Iterable[str]) -> str:
    """Return which file of ``complete``, such as "checkpoint-*/state", a checkpoint lacks."""
    for pattern, _, name in (each.rpartition("/") for each in complete):
        if fnmatchcase(place.name, pattern) and place.is_dir() and not (place / name).is_file():
            return f"has no {name}, which is written last"
    return ""


def _age(each: Stamp, origin: Origin) -> tuple[bool, int, int, str]:
    """Sort by age. Of two from one moment, step-1000 is newer than step-900."""
    return each not in origin.before, each.written, len(each.path), each.path


def launch(job: Job, checkpoint: Path | None = None, folder: Path | None = None) -> Launch:
    """Return what to start, from a checkpoint or from the beginning.

    The script may change its folder before it loads, so it is told the whole path: ``folder`` is
    its own as it sees it. In a container that may be another; there the path stays as it is found.
    """
    if checkpoint is None:
        return Launch(command=job.command, environment={})
    if job.resume is None:
        raise JobError("the job has no [resume], so it cannot resume from a checkpoint")
    elsewhere = Path(job.command[0]).name in ELSEWHERE
    name = str(checkpoint if folder is None or elsewhere else folder.absolute() / checkpoint)
    if name.startswith("-"):
        raise JobError(f"resume: the checkpoint {name!r} would be mistaken for an option")
    arguments = (word.replace(CHECKPOINT, name) for word in job.resume.arguments)
    environment = {
        key: value.replace(CHECKPOINT, name) for key, value in job.resume.environment.items()
    }
    return Launch(command=(*job.command, *arguments), environment=environment)
