"""Trainers with a command of their own, and how each is told to go on from a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rocsteady.doctor.knowledge.reader import DataFolder, Problems
from rocsteady.model import Value


class Needs(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An argument without which there is nothing to go on from."""

    argument: str
    why: str


class Refuses(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key of the trainer's YAML file that makes each start begin again."""

    key: str
    value: str
    why: str


class Trainer(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to recognise a trainer's command, and how it resumes."""

    name: str
    starts: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    needs: Needs | None = None
    refuses: Refuses | None = None
    cannot: str = ""
    sources: tuple[str, ...]


def trainer_of(command: Sequence[str]) -> Trainer | None:
    """Return the trainer that a command starts, if it is a known one."""
    for trainer in load_trainers():
        for start in trainer.starts:
            first, *rest = start.split()
            for at, word in enumerate(command):
                found = word == first or word.endswith(f"/{first}")
                if found and list(command[at + 1 : at + 1 + len(rest)]) == rest:
                    return trainer
    return None


@cache
def load_trainers(data: DataFolder | None = None) -> tuple[Trainer, ...]:
    """Read the table."""
    data = data or DataFolder()
    document = data.document("trainers.toml", "trainer")
    return data.listed(data.entries(document, "trainer", Trainer), _wrong_with)


def _wrong_with(trainer: Trainer) -> Problems:
    if not trainer.sources:
        yield "sources", "must not be empty"
    if bool(trainer.arguments) == bool(trainer.cannot):
        yield "arguments", "either these, or why it cannot"
