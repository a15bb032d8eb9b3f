"""Take away one variable that is known to harm; the next one, if that was not it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rocsteady.knowledge.harmful_variables import Harmful, harmful_variables
from rocsteady.model import Strategy
from rocsteady.remedies.history import strategies_tried
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="unset-variable",
    title="Unset a variable that is known to cause this",
    answers=tuple(dict.fromkeys(kind for each in harmful_variables() for kind in each.failures)),
    cost="what the variable was set for",
    rank=20,
    sources=("knowledge/data/harmful_variables.toml, which has them for each variable",),
    evidence="for most variables, the code that reads them; the file says so for each",
    when_not="You need the variable: use --deny unset-variable.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Unset the first that is in force and was not tried yet."""
    kind, before = situation.failure.kind, strategies_tried(situation)
    for each in _in_force(situation, kind):
        strategy = _without(situation, each.name)
        if strategy not in before:
            return strategy
    other = "other " if any(entry.remedy == REMEDY.id for entry in situation.tried) else ""
    return Refused(why=f"no {other}variable that is known to cause this is set")


def _in_force(situation: Situation, kind: str) -> Iterator[Harmful]:
    """Yield what harms in this failure; in any, where it is asked for by name and none is given."""
    for each in harmful_variables():
        if (not kind or kind in each.failures) and each.harms(situation.in_force):
            yield each


def _without(situation: Situation, name: str) -> Strategy:
    """Unset what the user has set; give up what an earlier remedy has set."""
    ours = dict(situation.strategy.variables)
    if name in ours:
        del ours[name]
    else:
        ours[name] = None
    return msgspec.structs.replace(situation.strategy, variables=ours)
