"""Variants and stages of a job: the same script with other arguments, as jobs of their own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from rocsteady.errors import JobError
from rocsteady.run.job.values import Job, Stage, Total

PYTHON = re.compile(r"(.*[/\\])?(py|python[0-9.]*)(\.exe)?")
_OPTION = re.compile(r"-[^0-9.].*", re.DOTALL)  # -1e-4 is a value
_ASSIGNED = re.compile(r"[A-Za-z_+~][^=\s]*=.*", re.DOTALL)  # model.size=128
_SUFFIX = ".py"


def variant_command(job: Job, name: str) -> tuple[str, ...]:
    return with_variant(job, name).command


def commands_of(job: Job) -> tuple[tuple[str, ...], ...]:
    """Return the command of a job, and then those of its variants."""
    return job.command, *(variant_command(job, name) for name in job.variants)


def with_variant(job: Job, name: str) -> Job:
    """Return the job with a model or a batch of another size."""
    variant = job.variants.get(name)
    if variant is None:
        there_are = ", ".join(job.variants) or "none"
        raise JobError(f"there is no variant {name!r}; there are: {there_are}")
    try:
        command = with_arguments(job.command, variant.arguments, variant.without)
    except ValueError as error:
        raise JobError(f"variants.{name}: {error}") from None
    return replace(job, command=command, total=variant.total or job.total)


def for_command(job: Job, command: tuple[str, ...]) -> tuple[Job, tuple[str, ...]]:
    """Return the job of a command, and the keys of a job for another one that do not apply to it.

    How much work another command is, and by when, is not known. The same script with other
    arguments counts and resumes in the same way, and writes the same files. Another interpreter
    does the same work.
    """
    if command == job.command:
        return job, ()
    pythons = all(PYTHON.fullmatch(each[0]) for each in (command, job.command))
    if pythons and command[1:] == job.command[1:]:  # another interpreter, perhaps by its path
        other = replace(job, command=command, stages=())
    elif _script(command) == _script(job.command):
        total = Total(log=job.total.log) if job.total and job.total.log else None
        other = replace(job, command=command, total=total, deadline=None, stages=())
    else:
        other = Job(
            command=command,
            budget=job.budget,
            hang_after=job.hang_after,
            log_limit=job.log_limit,
            notify=job.notify,
            metrics=job.metrics,
        )
    keys = ("name", "total", "deadline", "resume", "done_when", "variants", "stages")
    return other, tuple(key for key in keys if getattr(job, key) != getattr(other, key))


def _script(command: Sequence[str]) -> str:
    """Return what a command runs: its script, its module, or its program."""
    for before, word in pairwise(("", *command)):
        if word.endswith(".py") or before == "-m":
            return word
    return command[0]


def stage_job(job: Job, stage: Stage) -> Job:
    """Return a job with the arguments, goal and deadline of one stage."""
    base = with_variant(job, stage.variant) if stage.variant else job
    try:
        command = with_arguments(base.command, stage.arguments)
    except ValueError as error:
        raise JobError(f"stage {stage.name}: {error}") from None
    return replace(
        base,
        command=command,
        name=f"{job.name}-{stage.name}",
        total=stage.total or base.total,
        done_when=stage.done_when or base.done_when,
        deadline=stage.deadline or base.deadline,
        variants={},
        stages=(),
    )


def with_arguments(
    command: Sequence[str], arguments: Sequence[str], without: Sequence[str] = ()
) -> tuple[str, ...]:
    """Take words out of a command and put others in; raises ValueError where that is not clear."""
    words = list(command)
    for group in _groups(without):
        _take_out(words, group)
    for group in _groups(arguments):
        _put_in(words, group)
    return tuple(words)


def _groups(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield each option with the values that follow it, and each ``key=value``."""
    group: list[str] = []
    for word in words:
        is_value = group and _OPTION.fullmatch(group[0]) and "=" not in group[0]
        if _ASSIGNED.fullmatch(word):
            is_value = is_value and len(group) == 1
        if group and (_OPTION.fullmatch(word) or not is_value):
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def _place(words: Sequence[str], key: str) -> int | None:
    """Return where an option or a key stands last: that one counts."""
    found = [at for at, word in enumerate(words) if word == key or word.startswith(f"{key}=")]
    return found[-1] if found else None


def _put_in(words: list[str], group: list[str]) -> None:
    key, joined, _ = group[0].partition("=")
    named = _OPTION.fullmatch(key) or joined
    at = _place(words, key) if named else None
    if at is None:
        words += group
    elif joined or len(group) > 1:
        values = 1 if joined else len(group) - 1
        words[at : at + 1 + _values(words, at, at_most=values)] = group


def _values(words: Sequence[str], at: int, *, at_most: int) -> int:
    """Count the words that are an option's values: those up to the next option or the script."""
    if not _OPTION.fullmatch(words[at]) or "=" in words[at]:
        return 0
    rest = words[at + 1 :]
    ends = (n for n, word in enumerate(rest) if _OPTION.fullmatch(word) or word.endswith(_SUFFIX))
    count = next(ends, len(rest))
    if count > at_most:
        raise ValueError(
            f"{words[at]} is followed by {count} words in the command and {at_most} here, so"
            f" its values are ambiguous. Write {words[at]}=VALUE in the command"
        )
    return count


def _take_out(words: list[str], group: list[str]) -> None:
    """Take out words as they stand, or an option that is written with its value in one word."""
    size = len(group)
    for at in range(len(words) - size + 1):
        same = words[at : at + size] == group
        if same or (size == 1 and words[at].startswith(f"{group[0]}=")):
            del words[at : at + size]
            return
    raise ValueError(f"the command has no {shlex.join(group)}")
