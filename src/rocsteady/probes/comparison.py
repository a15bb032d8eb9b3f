"""The same probe without and with settings, in turn: whether they differ by more than chance.

Each process is a fresh one, since variables are read when libraries load. Which comes first changes
from round to round, so that a machine that warms up or tires does so for all of them. How many
rounds there are is fixed before the first: who stops when the result pleases finds what is not
there.
"""

from __future__ import annotations

import re
import statistics as plain
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from rocsteady.model import Observation, ProbeOutcome, Value
from rocsteady.probes.statistics import CONFIDENCE, chance, interval
from rocsteady.report.probe import Arm, Comparison

ROUNDS = (8, 16, 40)  # at levels 1, 2 and 3
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class VariableSetting(Value, frozen=True, kw_only=True):
    """One variable, set or unset."""

    spelt: str
    name: str
    value: str | None  # None: unset

    def already(self, environment: Mapping[str, str]) -> bool:
        """Tell whether it is so without us."""
        return environment.get(self.name) == self.value


WITHOUT = ""
Turn = Callable[[VariableSetting | None], Observation]


def read_setting(text: str) -> VariableSetting:
    """Read NAME=VALUE, NAME= for an empty value, or -NAME to unset."""
    name, equals, value = text.partition("=")
    unset = text.startswith("-")
    name = name.removeprefix("-")
    if not _NAME.fullmatch(name) or unset is bool(equals):
        raise ValueError(f"{text!r}: expected NAME=VALUE, or -NAME to unset it")
    return VariableSetting(spelt=text, name=name, value=None if unset else value)


def compare(
    probe: tuple[str, str],
    settings: Sequence[VariableSetting],
    rounds: int,
    turn: Turn,
    environment: Mapping[str, str],
) -> Comparison:
    """Let every setting have its turn in each round, and count. ``probe`` is name and variant."""
    voids = {
        each.spelt: "it is already set this way" for each in settings if each.already(environment)
    }
    live = [each for each in settings if each.spelt not in voids]
    seen: dict[str, list[Observation]] = {WITHOUT: [], **{each.spelt: [] for each in settings}}
    for setting in _in_turn([None, *live], rounds if live else 0):
        spelt = setting.spelt if setting else WITHOUT
        if spelt in voids:
            continue
        observation = turn(setting)
        seen[spelt].append(observation)
        if setting and (why := _not_in_force(setting, observation)):
            voids[spelt] = why
    return counted(probe, rounds, seen, voids)


def counted(
    probe: tuple[str, str],
    rounds: int,
    seen: Mapping[str, Sequence[Observation]],
    voids: Mapping[str, str],
) -> Comparison:
    """Make a comparison from what was seen: by setting, the first is without any."""
    without, *others = (_arm(spelt, observations) for spelt, observations in seen.items())
    tested = [arm for arm in others if arm.setting not in voids]
    # The more settings are tried, the more often one of them differs by chance.
    enough = (1 - CONFIDENCE) / max(1, len(tested))
    arms = [without]
    for arm in others:
        if arm.setting in voids:
            arms.append(msgspec.structs.replace(arm, void=voids[arm.setting]))
        elif not (arm.runs and without.runs):
            arms.append(msgspec.structs.replace(arm, void="it was not run"))
        else:
            p = chance(without.wrong, without.runs, arm.wrong, arm.runs)
            arms.append(msgspec.structs.replace(arm, p=p, differs=p <= enough))
    return Comparison(probe=probe[0], variant=probe[1], rounds=rounds, arms=tuple(arms))


def _in_turn(
    arms: Sequence[VariableSetting | None], rounds: int
) -> Iterator[VariableSetting | None]:
    for number in range(rounds):
        first = number % len(arms)
        yield from (*arms[first:], *arms[:first])


def _arm(spelt: str, observations: Sequence[Observation]) -> Arm:
    run = [each for each in observations if each.outcome is not ProbeOutcome.NOT_RUN]
    wrong = sum(each.bad for each in run)
    lowest, highest = interval(wrong, len(run)) if run else (0.0, 1.0)
    rates = [each.tries / each.seconds for each in run if not each.bad and each.seconds > 0]
    return Arm(
        setting=spelt,
        wrong=wrong,
        runs=len(run),
        lowest=lowest,
        highest=highest,
        a_second=plain.median(rates) if rates else None,
    )


def _not_in_force(setting: VariableSetting, observation: Observation) -> str:
    """Say how the process saw it, if not as it was set. One that died could not tell."""
    told = observation.said.get(setting.name)
    if told is None or told == (setting.value or ""):
        return ""
    return f"{setting.name} was {told!r} in the process" if told else f"{setting.name} was not set"
