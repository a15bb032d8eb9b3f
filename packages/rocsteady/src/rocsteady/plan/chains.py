"""Options in sequence, each with a rule for when it is left for the next one.

A link is set up, where a person must do that, and tried for a limited time. It is left if it does
not work, if it fails too often within that time, or if it is slower at the end of it than what
comes after it would be. Otherwise it is kept. How a chain ends is computed exactly, over every
combination of how fast its options may be and whether they work: so what has not been tried yet
counts by what a try would show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

from msgspec.structs import replace

from rocsteady.model import Risk
from rocsteady.plan import ranking
from rocsteady.plan.decision import by_hand
from rocsteady.plan.pace import NEVER_ENDS
from rocsteady.plan.ranking import A_CHANCE, GETS_THERE, SURE_CHANCE, in_time, is_rented, too_dear
from rocsteady.plan.values import Basis, Chain, ChainLink, Finish, Option
from rocsteady.run.options import StopRule

LONGEST_TRY, TRY_SHARE = 3600.0, 0.1  # seconds that a link is tried, and of what follows it
QUICK = 3600.0  # seconds of work by hand, at most
SHORTEST_TRY = 60.0  # seconds; less shows nothing
UNSAVED_TRY = 600.0  # seconds, where leaving loses all that was done
LEAST_FAILURES, OFTENER = 2, 3.0  # failures that end a try: so many times as many as expected
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of a forecast, equally likely
LINKS = 3  # in a chain, at most
CONSIDERED = 4  # options
UNLIKELY = 0.5  # times the best chance of what costs nothing; a chance with which nothing leads
NO_END = Finish(seconds=NEVER_ENDS, early=NEVER_ENDS, late=NEVER_ENDS, in_time=0.0)
FREE, ALIKE = 0.05, 0.03  # of a chance, that is given up for not paying, and for a sooner end


class Goals(NamedTuple):
    left: int  # steps
    due: float | None  # seconds from now
    budget: float | None  # dollars
    resumes: bool  # a new process goes on from what was saved


class Scenario(NamedTuple):
    """One way in which an option may go."""

    chance: float
    rate: float  # steps a second, with what failures cost; 0: it does not work


class LinkForecast(NamedTuple):
    """An option as a link: how it may go, and when it is left."""

    scenarios: tuple[Scenario, ...]
    within: float  # seconds; math.inf: it is never left
    least: float = 0.0  # steps a second, at the end of that time
    setup: float = 0.0  # seconds of work by hand, before it starts


class ChainEnd(NamedTuple):
    chance: float
    seconds: float


def leader(options: Sequence[Option], goals: Goals) -> Option:
    """Return the option to begin with, of those in order: by the best chain that begins with it.

    What costs nothing comes before what is rented, unless its chance is much worse: as long as
    there is time to rent afterwards, it is not. Of chances that are alike the sooner end counts.
    """
    first = options[0]
    unknown = ranking.untold(options)
    if unknown and _costs_no_chance(unknown, options, goals):
        return unknown
    if goals.due is None or (in_time(first) and runs_here(first)):
        return first
    free = [it.finish.in_time or 0.0 for it in options if it.finish and not is_rented(it)]
    hope = max(free, default=0.0)
    if first.changes and hope < A_CHANCE and not too_dear(first, goals.budget):
        return first  # no chain begins with it, and nothing else is on time
    likely = UNLIKELY * hope  # a detour is none to begin with
    ends = [
        (option, _best_end(option, options, goals))
        for option in options
        if option.finish and (option.finish.in_time or 0.0) >= likely
    ]
    best = next((it for it in options if not is_rented(it)), first)
    chance = A_CHANCE
    for option, end in sorted(ends, key=lambda it: (is_rented(it[0]), it[1].seconds)):
        least = chance + (FREE if is_rented(option) and not is_rented(best) else ALIKE)
        if (end.in_time or 0.0) > least:
            best, chance = option, end.in_time or 0.0
    poor = best.finish is not None and (best.finish.in_time or 0.0) < UNLIKELY
    return unknown if unknown and poor and not is_rented(best) else best


def _costs_no_chance(unknown: Option, options: Sequence[Option], goals: Goals) -> bool:
    """Whether what is likeliest would still be on time after a try of something else."""
    rents = ranking.may_rent(options, goals.budget)
    allowed = [it for it in options if rents or not is_rented(it)]
    ends = (it.finish for it in allowed if it.finish and not too_dear(it, goals.budget))
    best = max(ends, key=lambda it: it.in_time or 0.0, default=NO_END)
    seconds, chance = by_hand(unknown) + LONGEST_TRY, best.in_time or 0.0
    if goals.due is None:
        return seconds < best.seconds
    if chance >= ranking.LIKELY_CHANCE and not rents:
        return False
    return chance < A_CHANCE or best.late + seconds <= goals.due


def _best_end(option: Option, options: Sequence[Option], goals: Goals) -> Finish:
    """Return how the best chain that begins with an option ends, or the option alone."""
    alone = option.finish
    if option.changes or alone is None or not _is_worth_a_try(option, goals):
        return alone if alone and option is options[0] and not is_rented(option) else NO_END
    chain = chain_of(options, option, goals)
    if chain is None or (chain.finish.in_time or 0.0) < (alone.in_time or 0.0):
        return alone
    return chain.finish


def chain_of(options: Sequence[Option], start: Option, goals: Goals) -> Chain | None:
    """Return the best chain that begins with an option; None if there is none."""
    if start.finish is None or start.pace is None or is_rented(start):
        return None
    others = [
        it
        for it in options
        if it is not start and it.is_same_job(start) and _is_worth_a_try(it, goals)
    ]
    rented = [it for it in others if is_rented(it)][:1]
    own = sorted((it for it in others if not is_rented(it)), key=lambda it: not _is_quick_fix(it))
    others = [*own[: CONSIDERED - 1], *rented]
    fixes = min(sum(map(_is_quick_fix, own)), LINKS - len((start, *rented)))
    best: Chain | None = None
    for length in range(1, LINKS):
        for rest in permutations(others, length):
            if any(map(is_rented, rest[:-1])):
                continue
            if is_rented(rest[-1]) and sum(map(_is_quick_fix, rest)) < fixes:
                continue  # nobody pays before what is free and takes minutes was tried
            chain = _evaluated((start, *rest), goals)
            if chain is not None and (best is None or _worth(chain) > _worth(best)):
                best = chain
    if best is None or (best.finish.in_time or 0.0) < (start.finish.in_time or 0.0) - ALIKE:
        return None
    return best


def ends(links: Sequence[LinkForecast], left: float, *, resumes: bool) -> Iterator[ChainEnd]:
    """Yield how a chain may end, and how likely each is."""
    link, rest = links[0], links[1:]
    for scenario in link.scenarios:
        alone = left / scenario.rate if scenario.rate > 0 else NEVER_ENDS
        if not rest or alone <= link.within or scenario.rate >= link.least > 0:
            yield ChainEnd(scenario.chance, min(link.setup + alone, NEVER_ENDS))
            continue
        done = scenario.rate * link.within if resumes else 0.0
        for end in ends(rest, left - done, resumes=resumes):
            seconds = min(link.setup + link.within + end.seconds, NEVER_ENDS)
            yield ChainEnd(scenario.chance * end.chance, seconds)


def scenarios(option: Option, left: int) -> tuple[Scenario, ...]:
    """Return how an option may go, by its forecast and its risk."""
    finish = option.finish
    assert finish is not None  # noqa: S101 - only those with a forecast are asked
    works = GETS_THERE[option.risk]
    setup = by_hand(option)
    paces = [left / max(_quantile(finish, share) - setup, 1e-9) for share in QUANTILES]
    found = [Scenario(works / len(paces), pace) for pace in paces]
    return (*found, Scenario(1 - works, 0.0))


def _quantile(finish: Finish, share: float) -> float:
    """Interpolate between the ends of the 90 % interval and the middle, as logarithms."""
    far, at = (finish.early, 0.05) if share < 0.5 else (finish.late, 0.95)  # noqa: PLR2004
    part = (share - 0.5) / (at - 0.5)
    middle = math.log(max(finish.seconds, 1.0))
    return math.exp(middle + part * (math.log(max(far, 1.0)) - middle))


def _evaluated(options: Sequence[Option], goals: Goals) -> Chain | None:
    """Set the rules from the last link to the first, and compute how the chain ends."""
    left, due, resumes = goals.left, goals.due, goals.resumes
    tried: list[LinkForecast] = []
    links: list[ChainLink] = []
    for option in reversed(options):
        stop, within, setup = None, math.inf, by_hand(option)
        alone = option.finish
        if alone is None:
            return None
        if tried:
            after = list(ends(tried, left, resumes=resumes))
            within = _time_limit(after, setup, due, resumes=resumes)
            if within < SHORTEST_TRY:
                return None
            least = left / _at([end for end in after if end.seconds < NEVER_ENDS], 0.5)
            if not runs_here(options[-1]) and due is not None and due > setup:
                least = min(least, left / (due - setup))  # nobody pays or works for what is on time
            expected = alone.failures * within / max(alone.seconds, within)
            failures = max(LEAST_FAILURES, math.ceil(OFTENER * expected))
            stop = StopRule(within=within, failures=failures, least=least)
        rule = stop.least if stop and stop.least else 0.0
        tried.insert(0, LinkForecast(scenarios(option, left), within, rule, setup))
        links.insert(0, ChainLink(option=option.number, stop=stop, by_hand=_needs_hands(option)))
    if due is not None:
        latest = _latest_begins(options, tried, due)
        links = [replace(it, begin_by=at) for it, at in zip(links, latest, strict=True)]
    found = list(ends(tried, left, resumes=resumes))
    finish = Finish(
        seconds=_at(found, 0.5),
        early=_at(found, 0.05),
        late=_at(found, 0.95),
        in_time=None if due is None else sum(end.chance for end in found if end.seconds <= due),
    )
    return Chain(links=tuple(links), finish=finish)


def _latest_begins(
    options: Sequence[Option], tried: Sequence[LinkForecast], due: float
) -> list[float | None]:
    """Return by when each must begin: if it is left, the next must still begin in time.

    Never before the one before it ends: what is late for that begins at once.
    """
    found: list[float | None] = []
    latest = due
    for number in range(len(tried) - 1, 0, -1):
        link, end = tried[number], options[number].finish or NO_END
        needs = end.seconds if found else end.late
        before = sum(it.setup + it.within for it in tried[:number])
        left_by = latest - link.setup - link.within if found else latest
        latest = max(before, min(due - needs, left_by))
        found.insert(0, latest)
    return [None, *found]


def _time_limit(
    after: Sequence[ChainEnd], setup: float, due: float | None, *, resumes: bool
) -> float:
    """Return for how long a link may be tried without putting what follows it at risk."""
    limit = min(LONGEST_TRY, TRY_SHARE * _at(after, 0.5), math.inf if resumes else UNSAVED_TRY)
    slack = due - setup - _at(after, SURE_CHANCE) if due is not None else 0.0
    return min(limit, slack / 2) if slack > 0 else limit


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


def runs_here(option: Option) -> bool:
    """Whether a run can carry it out: it was tried here."""
    return option.basis is Basis.TRIAL


def _needs_hands(option: Option) -> bool:
    """Whether a person must do something before it starts: a run does not."""
    return not runs_here(option) and bool(by_hand(option) or option.steps)


def _is_quick_fix(option: Option) -> bool:
    return _needs_hands(option) and not is_rented(option) and by_hand(option) <= QUICK


def _is_worth_a_try(option: Option, goals: Goals) -> bool:
    """Whether it may be a link: nothing has to be changed for it, and it may be in time."""
    if option.finish is None or option.pace is None:
        return False
    if not runs_here(option) and (option.changes or option.risk is Risk.HIGH):
        return False
    if is_rented(option) and (goals.due is None or goals.budget is None):
        return False
    hopeless = option.finish.in_time is not None and option.finish.in_time < A_CHANCE
    return not hopeless and not too_dear(option, goals.budget)
