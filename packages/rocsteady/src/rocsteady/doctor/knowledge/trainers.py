"""Trainers that people use: how to recognise one, what it saves, and how it is told to resume."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from functools import cache
from pathlib import Path

import msgspec
from rocsteady_train.untrusted_file import read_head

from rocsteady.doctor.knowledge.reader import DataFolder, Problems
from rocsteady.doctor.knowledge.values import Sources
from rocsteady.model import Value

SCRIPT_LIMIT = 256 * 1024  # bytes of a script that are searched for a mark


class Prevents(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting of the trainer because of which it does not resume."""

    key: str  # an option of the command, or a key of its configuration or script
    values: tuple[str, ...] = ()  # that prevent it; (): it must be there
    beside: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)  # only with these
    why: str
    change: str  # what to write instead


class Trainer(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of one trainer. A library that scripts use has no ``starts``."""

    name: str
    starts: tuple[str, ...] = ()
    mark: str = ""  # that the text of its script, or of one that imports it, has
    imports: tuple[str, ...] = ()
    output: tuple[str, ...] = ()  # options or keys that name its folder, the first that is given
    default_output: str = ""
    checkpoints: tuple[str, ...] = ()  # patterns; "{output}" is that folder
    complete: tuple[str, ...] = ()  # the file that is written last: "checkpoint-*/state.json"
    last: tuple[str, ...] = ()  # names of the file that repeats the newest of those beside it
    arguments: tuple[str, ...] = ()
    itself: bool = False  # it resumes without being told
    cannot: str = ""
    hint: str = ""  # why a script that only imports it does not resume
    code: tuple[str, ...] = ()  # what to write in that script instead, with its imports
    call: str = ""  # the method that trains, which --resume-trainer gives a checkpoint
    prevents: tuple[Prevents, ...] = ()
    prints: str
    sets: tuple[str, ...] = ()  # variables that it sets itself
    signals: str = ""
    workers: str = ""  # the variable that keeps it from starting workers for its data
    seen: str  # its version
    tried: bool  # it was run under rocsteady; False: its source was read
    date: date
    sources: Sources


def trainer_of(command: Sequence[str], folder: Path) -> Trainer | None:
    for trainer in load_trainers():
        if any(_starts(start.split(), command, trainer.mark, folder) for start in trainer.starts):
            return trainer
    return None


def library_of(script: str) -> Trainer | None:
    for trainer in load_trainers():
        names = "|".join(map(re.escape, trainer.imports))
        imported = rf"(?m)^[ \t]*(?:from|import)[ \t]+(?:{names})\b"
        if names and trainer.mark in script and re.search(imported, script):
            return trainer
    return None


def _starts(words: Sequence[str], command: Sequence[str], mark: str, folder: Path) -> bool:
    """Return whether the words occur in the command, in this order."""
    rest = list(command)
    for number, word in enumerate(words):
        same = [i for i, each in enumerate(rest) if each == word or each.endswith(f"/{word}")]
        if not same or (number and rest[same[0]] != word):
            return False
        if not number and mark and not _has(folder / rest[same[0]], mark):
            return False
        rest = rest[same[0] + 1 :]
    return True


def _has(path: Path, mark: str) -> bool:
    try:
        return mark.encode() in read_head(path, SCRIPT_LIMIT)
    except OSError:  # it is started elsewhere: its name has to do
        return True


@cache
def load_trainers(data: DataFolder | None = None) -> tuple[Trainer, ...]:
    data = data or DataFolder()
    document = data.document("trainers.toml", "trainer")
    return data.listed(data.entries(document, "trainer", Trainer), _wrong_with)


def _wrong_with(trainer: Trainer) -> Problems:
    if bool(trainer.starts) == bool(trainer.imports):
        yield "starts", "either these, or imports"
    ways = (trainer.arguments, trainer.itself, trainer.cannot, trainer.hint)
    if sum(map(bool, ways)) != 1:
        yield "arguments", "one of arguments, itself, cannot and hint"
