"""Which variables an image sets. ENV acts in its containers, RUN only while a layer is built."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from rocsteady.doctor.shell_variables import (
    NAME,
    Assignment,
    Reach,
    Step,
    commands,
    leading,
    plain_value,
    segments,
    settled,
    shell_steps,
)

REFERENCE = re.compile(rf"\$(?:\{{({NAME})\}}|({NAME}))")
LONGEST_VALUE, LONGEST_LINE = 1000, 10_000  # characters
SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")


class _Stage(NamedTuple):
    name: str
    base: str
    steps: list[Step]


def dockerfile_steps(text: str) -> Iterator[Step]:
    """Read the variables of each stage that no other stage begins with."""
    stages: list[_Stage] = [_Stage("", "", [])]
    known: dict[str, str | None] = {}  # what ARG and ENV give
    for number, command in commands(text):
        word, _, rest = command.strip().partition(" ")
        if word.upper() == "FROM":
            image = [part for part in rest.split() if not part.startswith("--")]
            name = image[2] if len(image) > 2 else f"stage {len(stages)}"  # noqa: PLR2004 - AS
            stages.append(_Stage(name, image[0] if image else "", []))
        elif word.upper() == "ARG" and "=" in rest:
            name, _, value = rest.strip().partition("=")
            known[name] = plain_value(_filled(value, known))
        else:
            steps = list(_instruction(word.upper(), _filled(rest, known), f"line {number}"))
            if word.upper() == "ENV":
                known |= {each.name: each.value for each in steps if isinstance(each, Assignment)}
            stages[-1].steps.extend(steps)
    by_name = {stage.name: stage for stage in stages[1:]}
    bases = {stage.base for stage in stages}
    last = [stage for stage in stages if stage.name not in bases and (stage.name or stage.steps)]
    for stage in last:
        for step in _inherited(stage, by_name):
            told = isinstance(step, Assignment) and len(last) > 1
            yield step._replace(part=stage.name) if told else step  # type: ignore[call-arg]


def _filled(text: str, known: dict[str, str | None]) -> str:
    """Put in the values of ARG and ENV, where they are known; none that would make it huge."""

    def value(found: re.Match[str]) -> str:
        of_it = known.get(found.group(1) or found.group(2))
        return of_it if of_it and len(of_it) <= LONGEST_VALUE else found.group()

    return REFERENCE.sub(value, text) if len(text) <= LONGEST_LINE else text


def _instruction(word: str, rest: str, where: str) -> Iterator[Step]:
    if word == "ENV":
        yield from _env(rest, where)
    elif word == "RUN":
        for each in settled(shell_steps(rest, where), Reach.LAYER):
            seen = each.reach is Reach.PROGRAMS  # by a program of the build
            yield each._replace(reach=Reach.LAYER) if seen else each
    elif word in ("CMD", "ENTRYPOINT"):
        yield from settled(shell_steps(_shell_form(rest), where), Reach.LINE)


def _shell_form(rest: str) -> str:
    """Return the command of ``["sh", "-c", "..."]``, and the words of another list as a line."""
    try:
        words = json.loads(rest)
    except ValueError:
        return rest
    if not isinstance(words, list):
        return rest
    words = [str(word) for word in words]
    return words[-1] if words and words[0] in SHELLS else " ".join(words)


def _env(rest: str, where: str) -> Iterator[Step]:
    old = re.match(rf"({NAME})\s+(.*)", rest, re.DOTALL)
    if old:  # ENV NAME value
        yield Assignment(old.group(1), plain_value(old.group(2)), where)
        return
    for segment in segments(rest):
        yield from leading(["env", *segment], where)


def _inherited(stage: _Stage, by_name: dict[str, _Stage]) -> list[Step]:
    """Return what a stage sets, after what the stages that it begins with set."""
    found: list[Step] = []
    seen: set[str] = set()
    while stage.name not in seen:
        seen.add(stage.name)
        found = [*stage.steps, *found]
        stage = by_name.get(stage.base, stage)
    return found
