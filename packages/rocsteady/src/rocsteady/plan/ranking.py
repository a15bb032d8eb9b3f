"""Which option comes first, and why; docs/decisions/0030 says how.

The user's own machine comes first: a rented card comes after it unless there is a deadline that no
own option is likely to meet, and a budget. With a deadline: what keeps it comes before what does
not, and the better chance before the worse. Then what needs no other model and no change in the
script; then what was tried here, then the sooner end, where an end that is unsure counts as later,
by the risk, and that of what failed here too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rocsteady.model import Risk
from rocsteady.plan.values import CERTAIN, Basis, Option, Plan
from rocsteady.wording import duration, money, plural, rough_duration

SURE_CHANCE = 0.9  # a chance that counts as "in time"
LIKELY_CHANCE = 0.75  # a chance of an own option with which nobody rents
FAILED = 2.0  # times as late, that an option which did not fail here may be and still comes first
GETS_THERE = {Risk.LOW: 0.97, Risk.MEDIUM: 0.75, Risk.HIGH: 0.35}  # our own weights, not measured
YEAR = 365 * 86_400.0  # seconds
AS_GOOD = 1.08  # times as late: no later
FAR = 1e9  # seconds: later than any end
A_CHANCE = 0.05  # less is none
RECOMMENDED, BEST_ESTIMATE = "Recommended", "Best estimate"
MANY_RESTARTS = 10  # restarts; from here on a plan says how many there will be
WORTH_A_WORD = 1.1  # times as long
TIME_FOR_TRIALS = "trials take at most --within and a tenth of the job"
NO_COMPARISON = 10.0  # times as long: mostly the time to set it up
COSTS_ALL = "it cannot resume, so each one costs all that was done (add checkpoints first)"
PLAIN = ("gpu", "cpu")  # what a person would do without a plan


def ranked(options: list[Option], *, budget: float | None) -> list[Option]:
    """Sort the options, best first; of two that end together, prefer the one with fewer GPUs."""
    rents = may_rent(options, budget)
    keys = {id(it): (is_rented(it) and not rents, *_among_equals(it, budget)) for it in options}
    found = sorted(options, key=lambda option: keys[id(option)])
    for number in range(len(found) - 1, 0, -1):
        before, option = found[number - 1], found[number]
        alike = keys[id(before)][:-1] == keys[id(option)][:-1]
        measured = option.basis is before.basis is Basis.TRIAL
        if measured and alike and _gpus(option) < _gpus(before) and _as_soon(option, before):
            found[number - 1 : number + 1] = option, before
    return found


def is_rented(option: Option) -> bool:
    return option.price is not None


def may_rent(options: Sequence[Option], budget: float | None) -> bool:
    """Whether a rented card may be recommended: only for a deadline, and with a budget."""
    finishes = [option.finish for option in options if option.finish and not is_rented(option)]
    has_deadline = any(
        option.finish is not None and option.finish.in_time is not None for option in options
    )
    likely = any((finish.in_time or 0.0) >= LIKELY_CHANCE for finish in finishes)
    return has_deadline and budget is not None and not likely


def untold(options: Sequence[Option]) -> Option | None:
    """Return what costs nothing and changes nothing, and of which only a try tells the speed."""
    free = (it for it in options if not (is_rented(it) or it.changes or it.risk is Risk.HIGH))
    return next((it for it in free if not it.pace and it.basis is Basis.ESTIMATE), None)


def recommended(options: Sequence[Option], budget: float | None) -> int:
    """Return the number of the option to take, of those that are in order; 0: none."""
    if not options:
        return 0
    first = options[0]
    if not is_rented(first):
        own = (it for it in options if not is_rented(it))
        return first.number if any(it.pace or it.basis is Basis.TRIAL for it in own) else 0
    return first.number if may_rent(options, budget) and not too_dear(first, budget) else 0


def score(option: Option) -> float:
    if option.finish is None:  # then only the pace tells
        return FAR / max(option.pace.rate, 1 / FAR) if option.pace else FAR**2
    # Of what failed, being started again and again is the risk, and is in the forecast.
    risk = FAILED if option.failures else 1 / GETS_THERE[option.risk]
    return option.finish.seconds * risk


def in_time(option: Option) -> bool:
    """Whether it can be counted on for the deadline; without one it always can."""
    if option.finish is None:
        return False
    return option.finish.in_time is None or option.finish.in_time >= SURE_CHANCE


def likely_cost(option: Option) -> float | None:
    """Return what an option costs if it takes as long as is most likely; None: nothing."""
    if option.cost is None or option.price is None or option.finish is None:
        return None
    low, high = option.cost
    by_hand = sum(option.setup) / 2 * 60 if option.setup else 0.0
    likely = option.price.dollars * (option.finish.seconds - by_hand) / 3600
    return min(max(likely, low), high)


def order_of_offer(option: Option, budget: float | None) -> tuple[float, ...]:
    """Return a key that sorts offers: on time and within the budget first, then the cheapest."""
    chance = (option.finish.in_time if option.finish else None) or 0.0
    rate = option.pace.rate if option.pace else 1.0
    dollars = likely_cost(option) if option.finish else option.price and option.price.dollars / rate
    return (too_dear(option, budget), -min(round(chance, 1), SURE_CHANCE), dollars or 0.0)


def too_dear(option: Option, budget: float | None) -> bool:
    """Whether an option is likely to cost more than there is; that it may is not enough."""
    cost = likely_cost(option)
    return cost is not None and budget is not None and cost > budget


def _among_equals(option: Option, budget: float | None) -> tuple[float, ...]:
    has_deadline = option.finish is not None and option.finish.in_time is not None
    chance = round(option.finish.in_time or 0.0, 2) if option.finish and has_deadline else 0.0
    seconds = score(option)
    if not has_deadline:  # then time is all there is to weigh money and changes against
        seconds *= 3 if option.changes else 1
        if option.basis is Basis.ESTIMATE:
            seconds *= 1.5
        return (2 if option.finish is None else 0, option.risk is Risk.HIGH, seconds)
    if not in_time(option):
        dear = too_dear(option, budget)
        hopeless = chance < A_CHANCE
        return (1, hopeless, dear, -round(chance, 1), option.cost is not None, seconds)
    return (
        0,
        too_dear(option, budget),
        bool(option.changes),
        option.basis is Basis.ESTIMATE,
        option.cost is not None,
        seconds,
    )


def _gpus(option: Option) -> float:
    return math.inf if option.strategy.gpus is None else len(option.strategy.gpus)


def _as_soon(option: Option, other: Option) -> bool:
    first, second = option.finish, other.finish
    if first is None or second is None:
        return False
    close = first.seconds <= second.seconds * AS_GOOD
    return close or first.early <= second.late


def take(plan: Plan) -> str:
    if not plan.options:
        untried = _untried(plan)
        return f"No option has a forecast. {untried}" if untried else "No option was found."
    first = plan.options[0]
    if not recommended(plan.options, plan.budget):
        return (
            "No recommendation: no option on your own machine has a forecast, and renting needs a"
            " deadline and a budget that covers it."
        )
    label = BEST_ESTIMATE if plan.machine else RECOMMENDED
    return " ".join(filter(None, (f"{label}: option {first.number}.", reasons(plan))))


def reasons(plan: Plan) -> str:
    """Return why the first option is recommended, if it is."""
    if not recommended(plan.options, plan.budget):
        return ""
    first = plan.options[0]
    told = (_why(first, plan), _deadline(first, plan), _budget(first, plan), _other(first, plan))
    sentences = [reason for reason in told if reason][:3]
    if unknown := untold(plan.options):
        sentences.append(f"The speed of option {unknown.number} is not known: only a try tells.")
    if first.cost or first.basis is Basis.ESTIMATE:
        sentences.append(_untried(plan))
    return " ".join(filter(None, sentences))


def _why(first: Option, plan: Plan) -> str:
    """Return why a plainer option is not taken, or what was seen of this one."""
    for option in plan.options:
        if option.id in PLAIN and option.id != first.id and option.failures and not first.failures:
            return (
                f"Option {option.number} had {_failures(option)}{_rate(option)}; this one had none."
            )
    for option in plan.ruled_out:
        if option.id in PLAIN and option.id != first.id and option.rests_on:
            return f'"{option.title}" is ruled out ({option.rests_on[0].rstrip(".")}).'
    if first.basis is Basis.TRIAL:
        if first.failures:
            again = "rocsteady restarts it after each one" if first.resumes else COSTS_ALL
            return f"It had {_failures(first)} here; {again}{_rate(first)}."
        return "It ran here without a failure."
    return _of_others(first, plan)


def _of_others(first: Option, plan: Plan) -> str:
    """Return what is wrong with what was tried, where an estimate comes first."""
    tried = [option for option in plan.options if option.basis is Basis.TRIAL]
    if plan.machine:  # that all are estimates is said first
        return ""
    if not tried:
        return "It is an estimate." if plan.not_tried else "Nothing that was tried here works."
    if all(option.changes for option in tried):
        return "Every option that was tried here changes the job."
    same = " without changing the job" if any(option.changes for option in tried) else ""
    late = first.finish is not None and first.finish.in_time is not None
    return f"What was tried here{same} {'is not on time' if late else 'is slower'}."


def _rate(option: Option) -> str:
    """Return what the rate of failures means for the whole job."""
    if option.finish is None or option.finish.failures < MANY_RESTARTS:
        return ""
    return f": at this rate, {float(f'{option.finish.failures:.2g}'):,.0f} restarts"


def _failures(option: Option) -> str:
    kinds = f" ({', '.join(dict.fromkeys(option.kinds))})" if option.kinds else ""
    return f"{plural(option.failures, 'failure')} in {plural(option.failed_steps, 'step')}{kinds}"


def _deadline(first: Option, plan: Plan) -> str:
    if first.finish is None or first.finish.in_time is None:
        return ""
    chance = first.finish.in_time
    if chance >= CERTAIN and plan.deadline is not None:
        spare = plan.deadline - plan.made - first.finish.seconds
        return f"Option {first.number} finishes {duration(max(0.0, spare))} before the deadline."
    if in_time(first):
        return f"Option {first.number} has a {100 * chance:.0f} % chance of finishing on time."
    most = _best_chance(plan)
    if chance < A_CHANCE <= most:
        return f"Option {first.number} is unlikely to finish on time."
    if chance < A_CHANCE:
        soonest = min(plan.options, key=lambda it: it.finish.seconds if it.finish else math.inf)
        ends = f", in {duration(soonest.finish.seconds)}" if soonest.finish else ""
        ends += ", which costs money" * bool(soonest.cost)
        return f"No option finishes on time; the soonest is option {soonest.number}{ends}."
    best = "this has the best chance" if chance >= most else "the chance of this one is"
    return f"No option is certain to be on time; {best} ({100 * chance:.0f} %)."


def _best_chance(plan: Plan) -> float:
    return max((it.finish.in_time or 0.0 for it in plan.options if it.finish), default=0.0)


def _budget(first: Option, plan: Plan) -> str:
    if first.cost is None or plan.budget is None or first.cost[1] <= plan.budget:
        return ""
    likely = likely_cost(first) or first.cost[1]
    return (
        f"It costs about {_about(likely)}, at most {_about(first.cost[1])}; the budget is"
        f" {money(plan.budget)}."
    )


def _about(dollars: float) -> str:
    return money(round(dollars) if dollars >= 1 else dollars)


def _other(first: Option, plan: Plan) -> str:
    """Return what is given up: a better chance that is too expensive, or else the next option."""
    chance = first.finish.in_time if first.finish else None
    if chance is not None and _best_chance(plan) < A_CHANCE:
        return ""  # which is the soonest is said
    for option in plan.options[1:]:
        better = (
            option.finish is not None and (option.finish.in_time or 0.0) >= (chance or 0.0) + 0.1
        )
        if chance is not None and better and too_dear(option, plan.budget) and option.finish:
            percent = 100 * (option.finish.in_time or 0)
            return (
                f"Option {option.number} has a {percent:.0f} % chance of being on time, but is"
                f" likely to cost {_about(likely_cost(option) or 0)}, over the budget."
            )
    if len(plan.options) < 2:  # noqa: PLR2004 - there is no other
        return ""
    second = plan.options[1]
    if first.finish is None or second.finish is None:
        return ""
    end, other_end = first.finish.seconds, second.finish.seconds
    if second.changes and other_end < end:
        return f"Option {second.number} is faster but changes the job ({second.changes})."
    return _how_long(first, second, end, other_end)


def _how_long(first: Option, second: Option, end: float, other_end: float) -> str:
    name, ratio = f"Option {second.number}", other_end / max(end, 1.0)
    if ratio > NO_COMPARISON and other_end > YEAR:
        return f"{name} never finishes."
    if ratio > NO_COMPARISON:
        return f"{name} finishes {rough_duration(other_end - end)} after option {first.number}."
    if ratio > WORTH_A_WORD:
        return f"{name} takes {ratio:.1f} times as long."
    if ratio * WORTH_A_WORD < 1:
        against = [
            f"its risk is {second.risk.value}" * (second.risk is not Risk.LOW),
            "it is an estimate" * (second.basis is Basis.ESTIMATE is not first.basis),
            "costs money" * bool(second.cost),
        ]
        told = " and ".join(each for each in against if each)
        return f"{name} may be faster{f', but {told}' if told else ''}."
    return f"{name} takes about the same time."


def _untried(plan: Plan) -> str:
    """Name what could run here for nothing and was not tried."""
    if not plan.not_tried or plan.machine:
        return ""
    names = [option.title for option in plan.not_tried]
    verb = "were" if len(names) > 1 else "was"
    what = "not measured" if any(it.cut_short for it in plan.not_tried[:2]) else "not tried"
    return f"{', '.join(names[:2])} {verb} {what}; {TIME_FOR_TRIALS}."
