"""What a remedy is: an entry of remedies.toml, and the one change that it makes to a strategy.

Most entries say all of it. Those that have to compute something are functions of ``computed.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import msgspec

from rocsteady.doctor.condition_match import Matcher
from rocsteady.doctor.facts import Facts
from rocsteady.doctor.knowledge.failures import Nature
from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.knowledge.reader import DataFolder
from rocsteady.doctor.knowledge.rules import PLACEHOLDER, Condition, leaves, problems
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.torch_build import made_by
from rocsteady.errors import KnowledgeError
from rocsteady.failures.computed import COMPUTED, GFX_OVERRIDE
from rocsteady.failures.difference import describe_changes
from rocsteady.failures.situation import (
    NEEDS,
    Refused,
    Situation,
)
from rocsteady.model import Certainty, FailedAttempt, Failure, Fingerprint, Strategy, Value
from rocsteady.typed_values import convert
from rocsteady.versions import version_fits

ANY, HARMFUL = "any", "harmful"  # among what a remedy answers; see the head of the file
SAME_AGAIN = "retry"
# What ``when`` may ask. Names that the doctor has too mean the same.
FACTS: Mapping[str, str] = MappingProxyType(
    {
        "os": "linux or windows",
        "wsl": "whether this is WSL2",
        "driver.release": "of the separately installed driver, else of the kernel that brings it",
        "gpu.gfx": "of the GPUs that the run sees; beside a card, the APU does not count",
        "gpu.discrete.count": "cards of the machine",
        "gpu.integrated.count": "APUs of the machine",
        "torch.version": "without the local tag",
        "torch.build": "rocm, cuda or cpu",
        "torch.rocm": "the ROCm release that it was built for",
        "torch.made_by": "pytorch, amd or other",
        "run.failure": "the kind that is to be answered; absent if a person asks for the remedy",
        "run.failures": "the kinds of all attempts so far",
        "run.memory_full": "whether a GPU's memory was nearly full when the machine went down",
        "run.gpus": "how many the run sees",
        "run.ranks": "how many there are",
        "run.precision": "the lowest that the script computed in: fp32, bf16, fp16",
        "run.worker_contexts": "start methods of workers that remedies have tried",
        "loader.workers": "that are in effect, of the script or of a remedy",
        "loader.context": "the same for their start method: fork, forkserver, spawn",
        "loader.persistent": "the same for persistent_workers",
        "loader.pickles": "whether dataset and functions of the DataLoaders can be pickled",
        "loader.main_guarded": "whether the main module has a guard",
        "strategy.attention": "what a remedy has set",
        "strategy.precision": "what a remedy has set",
        "strategy.gpus": "what a remedy has set: the numbers of the GPUs",
    }
)
# Of the names that the allocator's settings may have, torch reads the first that is set; the last
# is read from 2.10 on. Every release reads the first.
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
ALLOCATOR_DISABLED_BY = ("PYTORCH_NO_HIP_MEMORY_CACHING", "PYTORCH_NO_CUDA_MEMORY_CACHING")


class Requirement(Condition, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition, and why a remedy is skipped where it does not hold; {facts} are filled in."""

    otherwise: str


class Changes(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a remedy changes of the training itself, such as its precision."""

    what: str
    ranks: int = 1  # from how many on


class Remedy(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the file: what a person wants to know of it, and what it changes."""

    id: str
    title: str
    answers: tuple[str, ...]  # kinds of failure, of failures.toml
    cost: str
    sources: tuple[str, ...]  # such as "ROCm/ROCm#6530"
    evidence: str  # how far these go
    when_not: str
    confirmed_on: tuple[str, ...] = ()  # hardware on which we saw it help; empty is "no"
    needs: str = ""  # gpu, rocm, rocr
    when: tuple[Requirement, ...] = ()
    set: dict[str, str] = msgspec.field(default_factory=dict)
    setting: dict[str, Any] = msgspec.field(default_factory=dict)
    allocator: dict[str, str] = msgspec.field(default_factory=dict)
    changes: Changes | None = None

    def answers_to(self, kind: str) -> bool:
        return ANY in self.answers or kind in self.answers

    def apply(self, situation: Situation) -> Strategy | Refused:
        """Return the strategy with one thing changed, or why that is not right here."""
        if self.id in COMPUTED:
            return COMPUTED[self.id](situation)
        if why := situation.lacks(self.needs) or self._unmet(situation):
            return Refused(why=why)
        return self.changed(situation)

    def changed(self, situation: Situation) -> Strategy | Refused:
        """Return the strategy with what the entry sets, whether or not it answers anything."""
        if self.setting:
            return _with_setting(situation, self.setting)
        if self.allocator:
            return _with_allocator_keys(situation, self.allocator)
        return _with_variables(situation, self.set)

    def needs_consent(self, situation: Situation) -> str:
        """Return why it is used only if the user names it; "" if it may be used."""
        if self.changes is None or situation.ranks < self.changes.ranks:
            return ""
        if self.id in (*situation.allow, *situation.also):
            return ""
        return f"it changes {self.changes.what}; to allow it: --also {self.id}"

    def _unmet(self, situation: Situation) -> str:
        """Return why the first requirement that does not hold is not met; "" if all are."""
        if not self.when:
            return ""
        facts = _facts(situation)
        checks = {need: partial(_has, situation, need) for need in NEEDS}
        matcher = Matcher(facts, checks, {})
        for requirement in self.when:
            if not matcher.match(requirement).holds:
                return PLACEHOLDER.sub(
                    lambda found: ", ".join(map(str, facts.values(found[1]))), requirement.otherwise
                )
        return ""


@cache
def load_remedies(data: DataFolder | None = None) -> Mapping[str, Remedy]:
    """Return every remedy by its id, cheapest first."""
    data = data or DataFolder()
    harmful = tuple(dict.fromkeys(kind for each in harmful_variables() for kind in each.failures))
    entries = data.entries(data.document("remedies.toml", "remedy"), "remedy", Remedy)
    remedies = data.named(entries, "id", _problems)
    if SAME_AGAIN not in remedies:
        raise KnowledgeError(f"remedies.toml: {SAME_AGAIN}: missing")
    return MappingProxyType(
        {
            name: msgspec.structs.replace(remedy, answers=harmful)
            if remedy.answers == (HARMFUL,)
            else remedy
            for name, remedy in remedies.items()
        }
    )


def asked(machine: Machine, variables: dict[str, str], **known: Any) -> Situation:  # noqa: ANN401 - fields
    """Return the situation of a run of which nothing has failed, and that is asked for by name."""
    nothing = Fingerprint(kind="")
    failure = Failure(
        kind="", title="", words="", certainty=Certainty.UNKNOWN, fingerprint=nothing, seen=()
    )
    return Situation(
        failure=failure,
        nature=Nature.DETERMINISTIC,
        strategy=Strategy(),
        tried=(FailedAttempt(strategy=Strategy(), failure=nothing),),
        machine=machine,
        variables=variables,
        **known,
    )


def requested_strategy(
    names: Iterable[str], machine: Machine, variables: dict[str, str], *, gpus: int
) -> Strategy | Refused:
    """Apply remedies that a person asks for by name; refuse the first that is not right here."""
    situation = asked(machine, variables, gpus=gpus)
    for name in names:
        result = load_remedies()[name].apply(situation)
        if isinstance(result, Refused):
            return Refused(why=f"{name}: {result.why}")
        attempt = msgspec.structs.replace(situation.tried[0], strategy=result)
        situation = msgspec.structs.replace(situation, strategy=result, tried=(attempt,))
    return situation.strategy


def _problems(remedy: Remedy) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an entry: the field, and a sentence."""
    for field in ("title", "answers", "cost", "sources", "evidence", "when_not"):
        if not getattr(remedy, field):
            yield field, "empty"
    if remedy.needs not in ("", *NEEDS):
        yield "needs", f"one of {', '.join(NEEDS)}"
    changes = [name for name in ("set", "setting", "allocator") if getattr(remedy, name)]
    if len(changes) + (remedy.id in COMPUTED) != 1:
        yield "set", "exactly one of set, setting, allocator, or a function of computed.py"
    try:
        convert(remedy.setting, Strategy)
    except msgspec.ValidationError as error:
        yield "setting", str(error)
    for name in remedy.setting:
        if name not in Strategy.__struct_fields__:
            yield "setting", f"{name!r} is not a field of a strategy"
    for requirement in remedy.when:
        yield from _requirement_problems(requirement)


def _requirement_problems(requirement: Requirement) -> Iterator[tuple[str, str]]:
    asked = [leaf.fact or "" for leaf in leaves(requirement)]
    facts = {*FACTS, *(name for name in asked if name.startswith("variable:"))}
    yield from problems(requirement, facts=facts, checks=NEEDS, families=())
    for name in PLACEHOLDER.findall(requirement.otherwise):
        if name not in FACTS:
            yield "when.otherwise", f"{name!r} is not a fact"


def _has(situation: Situation, need: str) -> tuple[str, ...]:
    return () if situation.lacks(need) else (need,)


def _facts(situation: Situation) -> Facts:
    """Return what conditions ask of a run. What is not known has no value, and nothing fits it."""
    machine, strategy, loader = situation.machine, situation.strategy, situation.loader
    torch, tried = machine.torch, situation.tried
    integrated = sum(gpu.integrated for gpu in machine.gpus.gpus)
    facts = Facts()
    if torch is not None:
        facts.know("torch.version", [torch.version.partition("+")[0]])
        facts.know("torch.build", [torch.build])
        facts.know("torch.rocm", [torch.rocm])
        facts.know("torch.made_by", [made_by(torch)])
    if loader is not None:
        facts.know("loader.workers", [loader.workers])
        facts.know("loader.context", [loader.context])
        facts.know("loader.persistent", [loader.persistent])
        facts.know("loader.pickles", [loader.pickles])
        facts.know("loader.main_guarded", [loader.main_guarded])
    if strategy.workers is not None:
        facts.know("loader.workers", [strategy.workers])
    if strategy.worker_context:
        facts.know("loader.context", [strategy.worker_context])
    if strategy.persistent_workers is not None:
        facts.know("loader.persistent", [strategy.persistent_workers])
    facts.know("os", [machine.system.os])
    facts.know("wsl", [machine.system.wsl])
    facts.know("driver.release", [machine.driver.version or machine.system.kernel or None])
    facts.know("gpu.gfx", situation.gfx_names)
    facts.know("gpu.discrete.count", [len(machine.gpus.gpus) - integrated])
    facts.know("gpu.integrated.count", [integrated])
    facts.know("run.failure", [situation.failure.kind or None])
    facts.know("run.failures", [attempt.failure.kind for attempt in tried])
    facts.know("run.memory_full", [situation.memory_full])
    facts.know("run.gpus", [situation.gpus])
    facts.know("run.ranks", [situation.ranks])
    facts.know("run.precision", [situation.precision or None])
    facts.know("run.worker_contexts", [attempt.strategy.worker_context for attempt in tried])
    facts.know("strategy.attention", [strategy.attention])
    facts.know("strategy.precision", [strategy.precision])
    facts.know("strategy.gpus", strategy.gpus or ())
    for name, value in situation.environment.items():
        facts.know(f"variable:{name}", [value])
    return facts


def _with_setting(situation: Situation, setting: Mapping[str, Any]) -> Strategy | Refused:
    changed = msgspec.structs.replace(situation.strategy, **setting)
    if changed.workers == 0:  # nothing is started that could have a context
        changed = msgspec.structs.replace(changed, worker_context=None)
    if changed == situation.strategy:
        there = describe_changes(Strategy(), convert(setting, Strategy))
        return Refused(why=f"{there} is already in effect")
    return changed


def set_by_no_workaround(strategy: Strategy) -> tuple[str, ...]:
    """Return the variables of a strategy that no workaround sets, or not to that value."""
    known = _is_set_by_workaround
    return tuple(name for name, value in strategy.variables.items() if not known(name, value))


def _is_set_by_workaround(name: str, value: str | None) -> bool:
    if value is None:
        unset = (GFX_OVERRIDE, *(each.name for each in harmful_variables()))
        return name.startswith(unset)
    return name in ALLOCATOR or any(
        each.set.get(name) == value for each in load_remedies().values()
    )


def _with_variables(situation: Situation, variables: Mapping[str, str]) -> Strategy | Refused:
    """Set variables, unless one is set: what the user has set is left as it is."""
    ours = situation.strategy.variables
    for name, value in variables.items():
        if situation.environment.get(name) == value:
            return Refused(why=f"{name}={value} is already set")
        if name in ours:
            return Refused(why=f"an earlier workaround changed {name}")
        if name in situation.variables:
            return Refused(why=f"you have set {name}={situation.variables[name]}")
    return msgspec.structs.replace(situation.strategy, variables={**ours, **variables})


def _with_allocator_keys(situation: Situation, keys: Mapping[str, str]) -> Strategy | Refused:
    """Add keys to the allocator settings that torch reads; what the user has set of them stays."""
    environment, torch = situation.environment, situation.machine.torch
    if torch is not None and torch.build == "cpu":
        return Refused(why=f"torch {torch.version} has no GPU memory to manage")
    if disabled := [name for name in ALLOCATOR_DISABLED_BY if name in environment]:
        return Refused(why=f"{disabled[0]} disables every allocator setting")
    new = torch is not None and version_fits(torch.version, ">=2.10")
    names = ALLOCATOR if new else ALLOCATOR[:-1]
    name = next((name for name in names if environment.get(name)), names[0])
    before = environment.get(name, "")
    if there := [key for key in keys if f"{key}:" in before]:
        return Refused(why=f"{name} already sets {there[0]}")
    joined = ",".join([*filter(None, [before]), *(f"{key}:{value}" for key, value in keys.items())])
    ours = situation.strategy.variables
    return msgspec.structs.replace(situation.strategy, variables={**ours, name: joined})
