"""Which options there are to run a job here, before any is tried; also those that are ruled out."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.values import ComputeDevice
from rocsteady.failures.difference import describe_changes
from rocsteady.model import FailureKind, Risk, Strategy
from rocsteady.plan.circumstances import Circumstances
from rocsteady.plan.values import Basis, Option
from rocsteady.run.recovery import is_as_deadly

GPU, CPU = "gpu", "cpu"
AS_IS = "unchanged"
SHORT = 40  # letters of a sentence that says little
FEW = 2  # variables that are named in a title
ON_CPU = Strategy(device="cpu")


def local_options(here: Circumstances) -> tuple[Option, ...]:
    """Return what could run on this machine, the plainest first."""
    if not here.gpus:
        return (_cpu(here),)
    return (*_gpu_options(here), _cpu(here))


def clean(here: Circumstances) -> Strategy:
    return Strategy(variables=dict.fromkeys(each.name for each in here.harmful))


def is_part_of_clean(strategy: Strategy, here: Circumstances) -> bool:
    """Whether a strategy only unsets some of the variables that are known to harm."""
    names = {each.name for each in here.harmful} if here.gpus else set()  # else it is no way here
    rest = msgspec.structs.replace(strategy, variables={})
    unset = strategy.variables.items()
    return bool(unset) and rest == Strategy() and all(v is None and n in names for n, v in unset)


def titled(strategy: Strategy, here: Circumstances) -> str:
    where, rest = "GPU", msgspec.structs.replace(strategy, device=None)
    if strategy.device == CPU or not here.gpus:
        where = "CPU"
    elif here.gpus > 1 and strategy.gpus == (0,):
        where, rest = "One GPU", msgspec.structs.replace(rest, gpus=None)
    unset = [name for name, value in rest.variables.items() if value is None]
    if len(unset) > FEW:  # what is wrong with each is said beside it
        others = {name: value for name, value in rest.variables.items() if value is not None}
        rest = msgspec.structs.replace(rest, variables=others)
        also = describe_changes(Strategy(), rest)
        return f"{where}, {len(unset)} variables unset{', ' * bool(also)}{also}"
    return f"{where}, {describe_changes(Strategy(), rest) or AS_IS}"


def _gpu_options(here: Circumstances) -> Iterator[Option]:
    strategies = [("", Strategy())]
    if here.harmful:
        strategies.append(("clean", clean(here)))
    if here.gpus > 1:
        one = msgspec.structs.replace(clean(here), gpus=(0,))
        strategies.append(("one", one))
    strategies += [each for each in here.remedied if not is_part_of_clean(each[1], here)]
    for name, strategy in strategies:
        option = Option(
            id=f"{GPU}+{name}" if name else GPU,
            title=titled(strategy, here),
            basis=Basis.TRIAL,
            strategy=strategy,
            rests_on=_about_variables(here) if name in ("clean", "one") else (),
        )
        why = _against_gpu(strategy, here)
        yield (
            msgspec.structs.replace(option, basis=Basis.RULED_OUT, rests_on=(why,))
            if why
            else option
        )


def _about_variables(here: Circumstances) -> tuple[str, ...]:
    """Return what is wrong with each: as the doctor found it here, or as is known in general."""
    reasons = []
    for each in here.harmful:
        found = (it for it in here.findings if any(each.name in fact for fact in it.seen))
        finding = next(found, None)
        name, why = (finding.rule, finding.summary) if finding else (each.name, each.why)
        reasons.append(f"{name}: {_in_short(why)}")
    return tuple(dict.fromkeys(reasons))


def _in_short(text: str) -> str:
    first, *rest = text.rstrip(".").split(". ")
    return ". ".join((first, *rest[: len(first) < SHORT]))


def _against_gpu(strategy: Strategy, here: Circumstances) -> str:
    """Return what rules the GPU out: a finding or an observation; "" if nothing does."""
    if any(is_as_deadly(strategy, deadly) for deadly in here.deadly):
        return (
            f"{FailureKind.MACHINE_WENT_DOWN}: these settings crashed the machine before;"
            " use --again to try them anyway"
        )
    blocking = [each for each in here.findings if each.severity is Severity.BLOCKS]
    if here.trains_on is ComputeDevice.CPU and blocking:
        return f"{blocking[0].rule}: {blocking[0].summary}"
    return ""


def _cpu(here: Circumstances) -> Option:
    strategy = ON_CPU if here.gpus else Strategy()
    return Option(
        id=CPU,
        title=titled(strategy, here),
        basis=Basis.TRIAL,
        strategy=strategy,
        risk=Risk.LOW,
    )
