"""Which options there are to run a job here, before any is tried; also those that are ruled out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.values import INSTALLS_TORCH, ComputeDevice, Finding, steps_in_order
from rocsteady.failures.difference import describe_changes
from rocsteady.failures.memory_arguments import accumulation_argument, memory_arguments
from rocsteady.model import FailureKind, Risk, Strategy
from rocsteady.plan.circumstances import Circumstances
from rocsteady.plan.values import Basis, Option
from rocsteady.run.job.values import Variant
from rocsteady.run.recovery.decision import is_as_deadly

GPU, CPU = "gpu", "cpu"
CLEAN, FIXED = "gpu+clean", "gpu+fix"
AS_IS = "unchanged"
SHORT_SENTENCE = 40  # letters of a sentence that says little
FEW_VARIABLES = 2  # variables that are named in a title
FIX_MINUTES = (15.0, 60.0)  # for commands of the doctor; our guess
ON_CPU = Strategy(device="cpu")
DRIVER = "amdgpu"
WORKERS, SMALLER_BATCH = "loader-workers", "smaller-batch"  # variants
OF_WORKERS = re.compile(r"^--(?:\w+[_-])*workers$")
PRECISION = re.compile(r"^--?[\w.-]*(?:precision|dtype)$")
BFLOAT16 = {
    **dict.fromkeys(("no", "fp16", "fp32"), "bf16"),
    **dict.fromkeys(("float16", "float32"), "bfloat16"),
    **dict.fromkeys(("16", "32", "16-mixed", "32-true"), "bf16-mixed"),  # as Lightning has them
}


def local_options(here: Circumstances) -> tuple[Option, ...]:
    """Return what could run on this machine, the plainest first."""
    if not here.gpus:
        why = [f"{it.rule}: {it.summary}" for it in _blocking(Strategy(), here)[:1]]
        gpu = Option(id=GPU, title=f"GPU, {AS_IS}", basis=Basis.RULED_OUT, rests_on=tuple(why))
        return (_cpu(here), gpu) if why else (_cpu(here),)
    return (*_gpu_options(here), _cpu(here))


def clean(here: Circumstances) -> Strategy:
    """Change the variables that are known to harm, and those that the doctor's fixes change."""
    return Strategy(variables=dict.fromkeys(each.name for each in here.harmful) | here.fixes)


def is_part_of_clean(strategy: Strategy, here: Circumstances) -> bool:
    """Whether a strategy only makes some of the changes that clean variables are."""
    known = clean(here).variables if here.gpus else {}  # else it is no way here
    rest = msgspec.structs.replace(strategy, variables={})
    return (
        bool(strategy.variables)
        and rest == Strategy()
        and known.items() >= strategy.variables.items()
    )


def titled(strategy: Strategy, here: Circumstances) -> str:
    where, rest = "GPU", msgspec.structs.replace(strategy, device=None)
    if strategy.device == CPU or not here.gpus:
        where = "CPU"
    elif here.gpus > 1 and strategy.gpus == (here.best_gpu,):
        where, rest = "One GPU", msgspec.structs.replace(rest, gpus=None)
    unset = [name for name, value in rest.variables.items() if value is None]
    if len(unset) > FEW_VARIABLES:  # what is wrong with each is said beside it
        others = {name: value for name, value in rest.variables.items() if value is not None}
        rest = msgspec.structs.replace(rest, variables=others)
        also = describe_changes(Strategy(), rest)
        return f"{where}, {len(unset)} variables unset{', ' * bool(also)}{also}"
    return f"{where}, {describe_changes(Strategy(), rest) or AS_IS}"


def _gpu_options(here: Circumstances) -> Iterator[Option]:
    strategies = [("", Strategy())]
    if clean(here) != Strategy():  # first: there may be time for one trial only
        strategies.insert(0, ("clean", clean(here)))
    if here.gpus > 1:
        one = msgspec.structs.replace(clean(here), gpus=(here.best_gpu,))
        strategies.append(("one", one))
    strategies += [
        each
        for each in dict(here.remedied).items()  # one may be named by what helped and by failures
        if not is_part_of_clean(each[1], here)
    ]
    for name, strategy in strategies:
        option = Option(
            id=f"{GPU}+{name}" if name else GPU,
            title=titled(strategy, here),
            basis=Basis.TRIAL,
            strategy=strategy,
            rests_on=_about_variables(here) if name in ("clean", "one") else (),
            steps=_commands(strategy, here.os),
        )
        why = _against_gpu(strategy, here)
        yield (
            msgspec.structs.replace(option, basis=Basis.RULED_OUT, rests_on=(why, *option.rests_on))
            if why
            else option
        )


def fixed_gpu(here: Circumstances, *, works: bool = False) -> Option | None:
    """Return the GPU after the doctor's steps, where these do more than change variables.

    Risks are mended too where the GPU does not work as it is, or needs another torch.
    """
    blocking = _blocking(clean(here), here)
    if here.deadly or not all(it.fix.mends and it.fix.commands for it in blocking):
        return None
    left_out = here.machine.gpus.not_offered if here.machine and not (here.gfx or here.wsl) else ()
    if any(it.driver == DRIVER for it in left_out):  # it is loaded, and will not have the card
        return None
    fixes = [it for it in here.findings if it.severity is not Severity.NOTES and it.fix.mends]
    mended, remaining = [it for it in fixes if it.fix.commands], here.findings_with(clean(here))
    installs = any(step.startswith(INSTALLS_TORCH) for it in mended for step in it.fix.commands)
    if works or not (installs or is_blocked(here)):
        mended = blocking
    if not {it.rule for it in mended} & {it.rule for it in remaining}:
        return None
    own = {name: it for name, it in clean(here).variables.items() if name not in here.fixes}
    return Option(
        id=FIXED,
        title=f"GPU, after the doctor's fix of {', '.join(it.rule for it in mended)}",
        basis=Basis.ESTIMATE,
        strategy=clean(here),
        risk=Risk.MEDIUM,
        setup=FIX_MINUTES,
        rests_on=(
            *(f"{it.rule}: {it.summary}" for it in mended),
            "set-up time unknown; 15 to 60 min assumed",
        ),
        steps=(*_commands(Strategy(variables=own), here.os), *steps_in_order(mended)),
    )


def in_bfloat16(command: Sequence[str], switches: Sequence[str]) -> dict[str, Variant]:
    """Return a variant that computes in bfloat16, where the script has an option for it."""
    named = zip(command, (*command[1:], ""), strict=True)
    pairs = [word.split("=", 1) if "=" in word else (word, value) for word, value in named]
    said = ((key, BFLOAT16.get(value)) for key, value in pairs if PRECISION.search(key))
    key, value = next((it for it in said if it[1]), ("", None))
    without = tuple(word for word in ("--fp16",) if word in command)
    arguments: tuple[str, ...] = ()
    if value:
        arguments = (key, value)
    elif "--bf16" not in command and (without or "--bf16" in switches):
        arguments = ("--bf16",)
    words = f"{' '.join(arguments)}: the numbers differ"
    found = Variant(arguments=arguments, without=without, words=words)
    return {"bf16": found} if arguments else {}


def more_workers(command: Sequence[str], wanted: int) -> dict[str, Variant]:
    """Return a variant with loader processes, where the script has an option for their number."""
    option = next((word for word in command if OF_WORKERS.search(word)), "")
    return {f"{WORKERS}-{wanted}": Variant(arguments=(option, str(wanted)))} if option else {}


def smaller_batch(command: Sequence[str]) -> dict[str, Variant]:
    """Return a variant with half of the batch, where the command says how large it is.

    Where the command also says over how many batches gradients are added up, that is doubled, so
    that the numbers are about those of the whole batch. Else a step sees half of the samples.
    """
    found = memory_arguments(command, FailureKind.OOM_DEVICE)[:1]
    if not found or not re.search(r"batch|^-*bs?$", found[0][0], re.IGNORECASE):
        return {}
    changed = [(found[0][0], found[0][1] // 2)]
    seen = "as many steps see half of the samples"
    if accumulation := accumulation_argument(command):
        seen = "each step sees as many samples as before"
        changed.append((accumulation[0], accumulation[1] * 2))
    words = [(name, str(it)) if name.startswith("-") else (f"{name}={it}",) for name, it in changed]
    told = " ".join(word for each in words for word in each)
    arguments = tuple(word for each in words for word in each)
    return {SMALLER_BATCH: Variant(arguments=arguments, words=f"{told}: {seen}")}


def _commands(strategy: Strategy, system: str) -> tuple[str, ...]:
    """Return what a person types for the variables of a strategy."""
    unset = [name for name, value in strategy.variables.items() if value is None]
    windows = system == "windows"
    lines = []
    if unset:
        names = ", ".join(f"Env:{name}" for name in unset)
        lines.append(f"Remove-Item {names}" if windows else f"unset {' '.join(unset)}")
    for name, value in strategy.variables.items():
        if value is not None:
            lines.append(f'$env:{name} = "{value}"' if windows else f"export {name}={value}")
    return tuple(lines)


def _about_variables(here: Circumstances) -> tuple[str, ...]:
    """Return what is wrong with each: as the doctor found it here, or as is known in general."""
    reasons = []
    for each in here.harmful:
        found = (it for it in here.findings if any(each.name in fact for fact in it.seen))
        finding = next(found, None)
        name, why = (finding.rule, finding.summary) if finding else (each.name, each.why)
        first, *rest = why.rstrip(".").split(". ")
        reasons.append(f"{name}: {'. '.join((first, *rest[: len(first) < SHORT_SENTENCE]))}")
    return tuple(dict.fromkeys(reasons))


def _against_gpu(strategy: Strategy, here: Circumstances) -> str:
    """Return what rules the GPU out: a finding or an observation; "" if nothing does."""
    if any(is_as_deadly(strategy, deadly) for deadly in here.deadly):
        return (
            f"{FailureKind.MACHINE_WENT_DOWN}: these settings crashed the machine before;"
            " use --again to try them anyway"
        )
    gpus = here.gpus_together if strategy.gpus is None else len(strategy.gpus)
    if here.ranks > gpus:
        return f"{here.ranks} ranks need as many GPUs; {gpus} here: --nproc-per-node {gpus}"
    hanging = [each for each in here.findings_with(strategy) if each.training_hung]
    for each in (*_blocking(strategy, here), *hanging):
        return f"{each.rule}: {each.summary}"
    return ""


def is_blocked(here: Circumstances) -> bool:
    return bool(_blocking(Strategy(), here))


def _blocking(strategy: Strategy, here: Circumstances) -> list[Finding]:
    if here.trains_on is not ComputeDevice.CPU:
        return []
    return [each for each in here.findings_with(strategy) if each.severity is Severity.BLOCKS]


def on_cpu(here: Circumstances) -> Strategy:
    return ON_CPU if here.gpus else Strategy()


def _cpu(here: Circumstances) -> Option:
    return Option(
        id=CPU,
        title=titled(on_cpu(here), here),
        basis=Basis.TRIAL,
        strategy=on_cpu(here),
        risk=Risk.LOW,
    )
