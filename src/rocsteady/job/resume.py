"""How a job goes on where it was: the newest checkpoint that is whole, handed to the command."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec.structs import replace

from rocsteady.errors import JobError
from rocsteady.job.checkpoint_origin import NANOSECONDS, Origin, Stamp, find
from rocsteady.job.file_check import kind_of, what_is_wrong
from rocsteady.job.values import CHECKPOINT, Job, Resume
from rocsteady.model import Value


class Launch(Value, frozen=True, kw_only=True):
    """What to start: arguments, and variables to be set on top of the environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


class Checkpoint(Value, frozen=True, kw_only=True):
    """What to go on from, and newer ones that were passed over because they are broken."""

    path: Path  # as the pattern is written: relative to the job's folder, or absolute
    written: float
    passed_over: tuple[str, ...] = ()  # each with what is wrong with it


def whole_checkpoints(
    job: Job,
    folder: Path,
    origin: Origin | None = None,
    avoid: Collection[Checkpoint] = (),
    judged: dict[Stamp, str] | None = None,
) -> Iterator[Checkpoint]:
    """Yield checkpoints that are whole, the newest first: the run's own, then those from before it.

    Left out are those that the run must not use, and those that are to be avoided. ``judged`` keeps
    what was found wrong with each, since reading a large one takes long.
    """
    judged = {} if judged is None else judged
    origin = origin or Origin()
    usable = find(job.resume, folder) - origin.foreign
    found = sorted(usable, key=lambda each: _age(each, origin), reverse=True)
    avoided = {(each.path, each.written) for each in avoid}
    passed_over: list[str] = []
    for each in found:
        path, when = Path(each.path), each.written / NANOSECONDS
        if each not in judged:
            judged[each] = what_is_wrong(folder / path, kind_of(path))
        wrong = judged[each]
        if not wrong and (path, when) in avoided:
            wrong = "did not lead on"
        if wrong:
            passed_over.append(f"{path} {wrong}")
        else:
            yield Checkpoint(path=path, written=when, passed_over=tuple(passed_over))


def _age(each: Stamp, origin: Origin) -> tuple[bool, int, int, str]:
    """Sort by age. Of two from one moment, step-1000 is newer than step-900."""
    return each not in origin.before, each.written, len(each.path), each.path


def launch(job: Job, checkpoint: Path | None = None) -> Launch:
    """Return what to start, from a checkpoint or from the beginning."""
    if checkpoint is None:
        return Launch(command=job.command, environment={})
    if job.resume is None:
        raise JobError("the job has no [resume], so it cannot resume from a checkpoint")
    name = str(checkpoint)
    if name.startswith("-"):
        raise JobError(f"resume: the checkpoint {name!r} would be mistaken for an option")
    filled = _filled(job.resume, name)
    return Launch(command=(*job.command, *filled.arguments), environment=dict(filled.environment))


def _filled(resume: Resume, checkpoint: str) -> Resume:
    fill = {CHECKPOINT: checkpoint}
    return replace(
        resume,
        arguments=tuple(fill.get(argument, argument) for argument in resume.arguments),
        environment={name: fill.get(value, value) for name, value in resume.environment.items()},
    )
