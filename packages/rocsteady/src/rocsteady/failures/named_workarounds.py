"""A strategy as the workarounds that it is made of, and back: what hosts tell each other.

A name, and a number where one is computed. What it sets is what this host's knowledge says of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.failures.computed import GFX_OVERRIDE, NUMBERED
from rocsteady.failures.ladder import unwanted
from rocsteady.failures.remedy import ALLOCATOR, load_remedies
from rocsteady.failures.situation import Refused, Situation
from rocsteady.model import Strategy, Value

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,64}\Z")]  # of a workaround, or a failure
UNSET, OVERRIDE_OFF, ONE_GPU = "unset-variable", "gfx-override-off", "single-gpu"


class Workaround(Value, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    id: Name
    # Workers, samples, checkpoints; which GPU, or which of the variables known to do harm.
    number: Annotated[int, Meta(ge=0, le=1 << 20)] = 0


def workarounds_in(strategy: Strategy) -> tuple[Workaround, ...]:
    """Return those by which a strategy differs from the script's own way."""
    return (*_in_settings(strategy), *_in_variables(strategy.variables))


def _in_settings(strategy: Strategy) -> Iterator[Workaround]:
    for name, remedy in load_remedies().items():
        setting = remedy.setting.items()
        if setting and all(getattr(strategy, field) == value for field, value in setting):
            yield Workaround(id=name)
        elif number := getattr(strategy, NUMBERED.get(name, ""), 0):
            yield Workaround(id=name, number=number)
    if strategy.gpus is not None and len(strategy.gpus) == 1:
        yield Workaround(id=ONE_GPU, number=strategy.gpus[0])


def _in_variables(variables: Mapping[str, str | None]) -> Iterator[Workaround]:
    harmful = [each.name for each in harmful_variables()]
    keys = {key for name in ALLOCATOR for key in (variables.get(name) or "").split(",")}
    for name, remedy in load_remedies().items():
        allocator = {f"{key}:{value}" for key, value in remedy.allocator.items()}
        if (
            (remedy.set or allocator)
            and allocator <= keys
            and remedy.set.items() <= variables.items()
        ):
            yield Workaround(id=name)
    for name in (name for name, value in variables.items() if value is None):
        if name in harmful:
            yield Workaround(id=UNSET, number=harmful.index(name))
        elif name.startswith(GFX_OVERRIDE):
            yield Workaround(id=OVERRIDE_OFF)


def strategy_of(workarounds: Iterable[Workaround], asked: Situation) -> Strategy | Refused:
    """Return the strategy that they are here; refuse one that is unknown, or may not be used.

    One that has nothing to change here changes nothing: what the user has set stays.
    """
    for each in workarounds:
        remedy = load_remedies().get(each.id)
        if remedy is None:
            return Refused(why=f"{each.id} is not known here")
        strategy = _with(each, asked)
        if strategy == asked.strategy:
            continue
        if why := unwanted(each.id, asked) or remedy.needs_consent(asked):
            return Refused(why=f"{each.id}: {why}")
        asked = replace(asked, strategy=strategy)
    return asked.strategy


def _with(workaround: Workaround, asked: Situation) -> Strategy:
    name, number, strategy = workaround.id, workaround.number, asked.strategy
    variables, environment = strategy.variables, asked.environment
    unset: list[str] = []
    if name in NUMBERED:
        return replace(strategy, **{NUMBERED[name]: number or getattr(Strategy(), NUMBERED[name])})
    if name == ONE_GPU:
        return replace(strategy, gpus=(number,))
    if name == UNSET:
        unset = [each.name for each in harmful_variables()[number : number + 1]]
    elif name == OVERRIDE_OFF:
        unset = sorted(each for each in environment if each.startswith(GFX_OVERRIDE))[:1]
    else:
        changed = load_remedies()[name].changed(asked)
        return strategy if isinstance(changed, Refused) else changed
    taken = {each: None for each in unset if each in environment}
    return replace(strategy, variables={**variables, **taken})
