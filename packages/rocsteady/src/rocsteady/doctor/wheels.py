"""Which builds of torch exist for a GPU, and what the rules would say of each.

A build is judged as if it were installed: the rules are run over the facts that follow from it, and
what a rule asks beyond them stays unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime

from rocsteady.doctor.diagnosis import doctors_knowledge, rule_findings
from rocsteady.doctor.facts import FACTS, PYTORCH_INDEX, Facts, Scalar
from rocsteady.doctor.knowledge.gpu_names import gfx_of, named_gfx
from rocsteady.doctor.knowledge.hardware import Arch, WheelIndex, WheelRelease
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.state import is_out_of_date, last_checked
from rocsteady.doctor.knowledge.values import Backing, Severity
from rocsteady.doctor.machine.gpus import INTEGRATED_GFX
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.doctor.training_gpus import trainable
from rocsteady.doctor.values import KnownProblem, TorchOffer, TorchOffers
from rocsteady.errors import ExaminationError
from rocsteady.system.root import Root
from rocsteady.versions import version_fits

Wheel = WheelRelease | WheelIndex
WINDOWS, WSL = "windows", "wsl"
NOT_ASKED = "not part of a build of torch"


def find_torch_offers(
    root: Root, *, gpus: tuple[str, ...], system: str | None, python: str | None
) -> TorchOffers:
    """List the builds; what is not named is read from the machine below ``root``."""
    knowledge = doctors_knowledge()
    named = tuple(dict.fromkeys(named_gfx(gpu, knowledge) for gpu in gpus))
    machine, _ = examine(root, knowledge.variables)
    version = (machine.python.version if machine.python else None) or ""
    return torch_offers(
        machine,
        knowledge,
        gfxs=named or _gfxs_here(machine, knowledge),
        system=system or ("wsl" if machine.system.wsl else machine.system.os),
        python=python or ".".join(version.split(".")[:2]),
        today=datetime.now(tz=UTC).date(),
    )


def _gfxs_here(machine: Machine, knowledge: Knowledge) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(gfx_of(gpu, knowledge) or "" for gpu in trainable(machine)))
    known = tuple(gfx for gfx in found if gfx in knowledge.arches)
    if known:
        return known
    if any(found):
        raise ExaminationError(f"no builds are known for {', '.join(filter(None, found))}")
    raise ExaminationError("no AMD GPU was found here; name one with --gpu, such as --gpu gfx1100")


def torch_offers(  # noqa: PLR0913 - each is asked for by itself
    machine: Machine,
    knowledge: Knowledge,
    *,
    gfxs: tuple[str, ...],
    system: str,
    python: str,
    today: date | None = None,
) -> TorchOffers:
    """List the builds for the first GPU, and say which of them lack code for the others.

    ``machine`` is only what the checks of rules are given.
    """
    gfx, *others = gfxs
    left_out: Counter[str] = Counter()
    offers = []
    rows: tuple[Wheel, ...] = (
        *knowledge.indexes,
        *reversed(knowledge.wheels),
    )
    for wheel in rows:
        why_not = _why_not(wheel, knowledge.arches[gfx], system, python)
        if why_not:
            left_out[why_not] += 1
        else:
            offer = _offer(wheel, machine, knowledge, gfxs, system)
            offers.append((_rank(wheel, offer), offer))
    offers.sort(key=lambda ranked: ranked[0])
    return TorchOffers(
        gfx=gfx,
        system=system,
        python=python,
        offers=tuple(offer for _, offer in offers),
        left_out=dict(left_out),
        others=tuple(others),
        note=" ".join(filter(None, (_note(knowledge, gfx, system), _age(knowledge, today)))),
    )


def _age(knowledge: Knowledge, today: date | None) -> str:
    newest = knowledge.indexes[:1]
    if today is None or not any(is_out_of_date(it, knowledge.sources, today) for it in newest):
        return ""
    day = last_checked(newest[0], knowledge.sources)
    return f"This list was last checked on {day} and is out of date: look at the index as well."


def _note(knowledge: Knowledge, gfx: str, system: str) -> str:
    listed = any(gfx in index.supported.get(WSL, ()) for index in knowledge.indexes)
    if system == WSL and not listed:
        return f"AMD does not list {gfx} for WSL. This does not apply to native Linux."
    arch = knowledge.arches[gfx]
    if arch.systems and system not in arch.systems:
        return f"AMD lists {gfx} for Linux only."
    return arch.note or (arch.linux_note if system == "linux" else "")


def _why_not(wheel: Wheel, arch: Arch, system: str, python: str) -> str:
    gfx = arch.gfx
    systems = wheel.systems if isinstance(wheel, WheelIndex) else ("linux", WSL)
    if system not in systems or (arch.systems and system not in arch.systems):
        return f"not for {system}"
    if gfx not in wheel.arches:
        return f"no code for {gfx}"
    if python and wheel.python and not version_fits(python, wheel.python):
        return f"not for Python {python}"
    return ""


def _offer(
    wheel: Wheel,
    machine: Machine,
    knowledge: Knowledge,
    gfxs: tuple[str, ...],
    system: str,
) -> TorchOffer:
    gfx = gfxs[0]
    problems = tuple(_problems(wheel, machine, knowledge, gfx, system))
    note = wheel.note
    if isinstance(wheel, WheelIndex):
        devices = ",".join(f"device-{each}" for each in gfxs if each in wheel.arches)
        title, torch = wheel.title, version_span(wheel.torch)
        backing = wheel.backing(gfx, system)
        note = note.replace("{extra}", f"[{devices}]")
        pre = "--pre " * wheel.pre
        install = f"pip install {pre}--index-url {wheel.address} 'torch[{devices}]{wheel.pin}'"
    else:
        title, torch = "pytorch.org", wheel.latest
        backing = Backing.BUILT if system == WSL else Backing.RELEASED
        index = f"{PYTORCH_INDEX}{wheel.rocm}"
        install = f"pip install torch=={wheel.latest}+rocm{wheel.rocm} --index-url {index}"
    if system == WINDOWS:
        install, note = install.replace("'", '"'), note.replace("'", '"')
    return TorchOffer(
        title=title,
        torch=torch,
        rocm=wheel.rocm,
        backing=backing,
        install=install,
        problems=problems,
        sources=tuple(knowledge.sources[key] for key in wheel.sources),
        note=note,
        lacks=tuple(each for each in gfxs[1:] if each not in wheel.arches),
    )


def _problems(
    wheel: Wheel, machine: Machine, knowledge: Knowledge, gfx: str, system: str
) -> Iterator[KnownProblem]:
    facts = _facts(wheel, gfx, system)
    found = rule_findings(machine, facts, knowledge, checks={}).findings
    order = list(Severity)
    for finding in sorted(found, key=lambda each: order.index(each.severity)):
        about_torch = any(each.startswith("torch.") for each in finding.seen)
        if finding.severity is not Severity.NOTES and about_torch:
            yield KnownProblem(
                rule=finding.rule, severity=finding.severity, summary=finding.summary
            )


def _facts(wheel: Wheel, gfx: str, system: str) -> Facts:
    """Return what would be known of a machine with this GPU and this build; the rest is not."""
    of_amd = isinstance(wheel, WheelIndex)
    pinned = wheel.pin.partition("+rocm")[2] if isinstance(wheel, WheelIndex) else ""
    rocm = pinned or wheel.rocm
    version = wheel.latest if isinstance(wheel, WheelRelease) else _newest(wheel.torch)
    card = gfx not in INTEGRATED_GFX
    known: dict[str, list[Scalar]] = {
        "os": [WINDOWS if system == WINDOWS else "linux"],
        "wsl": [system == WSL],
        "gpu.count": [1],
        "gpu.visible.count": [1],
        "gpu.gfx": [gfx],
        "gpu.discrete.count": [int(card)],
        "gpu.discrete.gfx": [gfx] if card else [],
        "gpu.integrated.gfx": [] if card else [gfx],
        "torch.installed": [True],
        "torch.version": [version],
        "torch.build": ["rocm"],
        "torch.rocm": [rocm],
        "torch.made_by": ["amd" if of_amd else "pytorch"],
        "torch.arches": list(wheel.arches),
    }
    facts = Facts()
    for name in FACTS:
        if name in known:
            facts.know(name, known[name])
        else:
            facts.cannot_tell(name, NOT_ASKED)
    return facts


def version_span(versions: str) -> str:
    """Spell >=2.12,<2.15 as people do: 2.12 to 2.14."""
    first, last = versions.removeprefix(">=").partition(",")[0], _newest(versions)
    last = last.removesuffix(".0")
    return first if first == last else f"{first} to {last}"


def _newest(versions: str) -> str:
    """Return a release of a range such as >=2.12,<2.15: the last that is below its end."""
    major, _, minor = versions.partition("<")[2].partition(".")
    return f"{major}.{int(minor) - 1}.0"


def _rank(wheel: Wheel, offer: TorchOffer) -> tuple[object, ...]:
    """Order builds: those that work here first, then those that somebody vouches for, by age.

    Of one torch that with the newer ROCm comes first, whatever its last number.
    """
    blocked = any(problem.severity is Severity.BLOCKS for problem in offer.problems)
    nightly = isinstance(wheel, WheelIndex) and not wheel.supported
    torch = wheel.latest if isinstance(wheel, WheelRelease) else _newest(wheel.torch)
    major, minor, *patch = torch.split(".")
    numbers = (major, minor, *wheel.rocm.split("."), *patch)
    age = [-int(number) for number in numbers]
    return blocked, len(offer.lacks), offer.backing is Backing.BUILT, nightly, age
