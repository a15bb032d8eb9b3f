"""Options in sequence, each with a rule for when the run goes on to the next one.

A link is tried for a limited time. It is left if it fails too often within that time, or if it is
slower at the end of it than what comes after it would be. Otherwise it is kept. How a chain ends is
computed exactly, over every combination of how fast its options may be and whether they work.

A link is kept only if it ends no later than the rest of the chain is expected to take from the
start. A chain therefore loses at most its time limits against its last option.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

from rocsteady.plan.pace import NEVER_ENDS
from rocsteady.plan.ranking import GETS_THERE, SURE_CHANCE, is_rented, too_dear
from rocsteady.plan.values import Basis, Chain, ChainLink, Finish, Option
from rocsteady.run.options import StopRule

LONGEST_TRY, TRY_SHARE = 3600.0, 0.1  # seconds that a link is tried, and of what follows it
SHORTEST_TRY = 60.0  # seconds; less shows nothing
UNSAVED_TRY = 600.0  # seconds, where leaving loses all that was done
LEAST_FAILURES, OFTENER = 2, 3.0  # failures that end a try: so many times as many as expected
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of a forecast, equally likely
LINKS = 3  # in a chain, at most
CONSIDERED = 4  # options


class Scenario(NamedTuple):
    """One way in which an option may go."""

    chance: float
    rate: float  # steps a second, with what failures cost; 0: it does not work


class LinkForecast(NamedTuple):
    """An option as a link: how it may go, and when it is left."""

    scenarios: tuple[Scenario, ...]
    within: float  # seconds; math.inf: it is never left
    least: float = 0.0  # steps a second, at the end of that time


class ChainEnd(NamedTuple):
    chance: float
    seconds: float


def chain_of(  # noqa: PLR0913 - all are keyword arguments
    options: Sequence[Option],
    *,
    first: int,
    left: int | None,
    due: float | None,
    budget: float | None,
    resumes: bool,
) -> Chain | None:
    """Return the best chain that begins with an option, by its number; None if there is none."""
    start = next((it for it in options if it.number == first), None)
    if start is None or left is None or not _runs_here(start):
        return None
    others = [
        it for it in options if it is not start and _runs_here(it) and _is_same_job(it, start)
    ]
    best: Chain | None = None
    for length in range(1, LINKS):
        for rest in permutations(others[:CONSIDERED], length):
            chain = _evaluated((start, *rest), left, due, resumes=resumes)
            if chain is not None and (best is None or _worth(chain) > _worth(best)):
                best = chain
    if best is None:
        return None
    return Chain(links=best.links, finish=best.finish, rent_by=_rent_by(options, due, budget))


def ends(links: Sequence[LinkForecast], left: float, *, resumes: bool) -> Iterator[ChainEnd]:
    """Yield how a chain may end, and how likely each is."""
    link, rest = links[0], links[1:]
    for scenario in link.scenarios:
        alone = left / scenario.rate if scenario.rate > 0 else NEVER_ENDS
        if not rest or alone <= link.within or scenario.rate >= link.least > 0:
            yield ChainEnd(scenario.chance, min(alone, NEVER_ENDS))
            continue
        done = scenario.rate * link.within if resumes else 0.0
        for end in ends(rest, left - done, resumes=resumes):
            seconds = min(link.within + end.seconds, NEVER_ENDS)
            yield ChainEnd(scenario.chance * end.chance, seconds)


def mean(found: Sequence[ChainEnd]) -> float:
    return sum(end.chance * end.seconds for end in found)


def scenarios(option: Option, left: int) -> tuple[Scenario, ...]:
    """Return how an option may go, by its forecast and its risk."""
    finish = option.finish
    assert finish is not None  # noqa: S101 - only those with a forecast are asked
    works = GETS_THERE[option.risk]
    paces = [left / max(_quantile(finish, share), 1e-9) for share in QUANTILES]
    found = [Scenario(works / len(paces), pace) for pace in paces]
    return (*found, Scenario(1 - works, 0.0))


def _quantile(finish: Finish, share: float) -> float:
    """Interpolate between the ends of the 90 % interval and the middle, as logarithms."""
    far, at = (finish.early, 0.05) if share < 0.5 else (finish.late, 0.95)  # noqa: PLR2004
    part = (share - 0.5) / (at - 0.5)
    middle = math.log(max(finish.seconds, 1.0))
    return math.exp(middle + part * (math.log(max(far, 1.0)) - middle))


def _evaluated(
    options: Sequence[Option], left: int, due: float | None, *, resumes: bool
) -> Chain | None:
    """Set the rules from the last link to the first, and compute how the chain ends."""
    last = options[-1]
    tried = [LinkForecast(scenarios(last, left), math.inf)]
    links = [ChainLink(option=last.number, title=last.title, strategy=last.strategy)]
    for option in reversed(options[:-1]):
        after = list(ends(tried, left, resumes=resumes))
        within = _time_limit(after, due, resumes=resumes)
        if within < SHORTEST_TRY or option.finish is None:
            return None
        least = left / mean(after)
        tried.insert(0, LinkForecast(scenarios(option, left), within, least))
        expected = option.finish.failures * within / max(option.finish.seconds, within)
        failures = max(LEAST_FAILURES, math.ceil(OFTENER * expected))
        stop = StopRule(within=within, failures=failures, least=least)
        links.insert(
            0,
            ChainLink(
                option=option.number, title=option.title, strategy=option.strategy, stop=stop
            ),
        )
    return Chain(links=tuple(links), finish=_finish(list(ends(tried, left, resumes=resumes)), due))


def _time_limit(after: Sequence[ChainEnd], due: float | None, *, resumes: bool) -> float:
    """Return for how long a link may be tried without putting what follows it at risk."""
    limit = min(LONGEST_TRY, TRY_SHARE * _middle(after), math.inf if resumes else UNSAVED_TRY)
    slack = due - _at(after, SURE_CHANCE) if due is not None else 0.0
    return min(limit, slack / 2) if slack > 0 else limit


def _finish(found: list[ChainEnd], due: float | None) -> Finish:
    return Finish(
        seconds=_middle(found),
        early=_at(found, 0.05),
        late=_at(found, 0.95),
        in_time=None if due is None else sum(end.chance for end in found if end.seconds <= due),
    )


def _middle(found: Sequence[ChainEnd]) -> float:
    return _at(found, 0.5)


def _at(found: Sequence[ChainEnd], share: float) -> float:
    """Return the end that this share of the chance lies at or before."""
    reached = 0.0
    for end in sorted(found, key=lambda it: it.seconds):
        reached += end.chance
        if reached >= share - 1e-9:
            return end.seconds
    return NEVER_ENDS


def _worth(chain: Chain) -> tuple[float, float]:
    chance = chain.finish.in_time
    return (0.0 if chance is None else round(chance, 2), -chain.finish.late - chain.finish.seconds)


def _runs_here(option: Option) -> bool:
    return option.basis is Basis.TRIAL and option.finish is not None and option.pace is not None


def _is_same_job(option: Option, start: Option) -> bool:
    """Whether it trains the same model, with the same numbers or with the script's own."""
    same = (option.variant, option.command) == (start.variant, start.command)
    return same and option.strategy.precision in (None, start.strategy.precision)


def _rent_by(options: Sequence[Option], due: float | None, budget: float | None) -> float | None:
    """Return when it is too late to rent, in seconds from now; None: there is no use in it."""
    if due is None or budget is None:
        return None
    latest = [
        due - option.finish.late
        for option in options
        if is_rented(option) and option.finish and not too_dear(option, budget)
    ]
    return max((it for it in latest if it > 0), default=None)
