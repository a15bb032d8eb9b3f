"""What an author has overlooked: no source, a dead reference, a condition that never holds.

The reader refuses what cannot be used. Here is what can be used, and is not worth having.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rocsteady.doctor.knowledge.failures import FailureKnowledge
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.rules import Condition, operator_of

SEVERAL = ("gpu.", "device.render", "kernel.arguments", "rocm.version", "override.", "variables.",
           "libraries.", "torch.arches")  # facts that may have several values at once  # fmt: skip
HIGHEST = "999999"


def complaints(knowledge: Knowledge, failures: FailureKnowledge | None) -> Iterator[str]:
    """Yield each as "entry: what is wrong"."""
    yield from _unsourced(knowledge, failures)
    yield from _dead_references(knowledge)
    for rule in knowledge.rules.values():
        if never_holds(rule.when):
            yield f"{rule.id}: when: can never hold"
    yield from _shadowed(knowledge)


def _unsourced(knowledge: Knowledge, failures: FailureKnowledge | None) -> Iterator[str]:
    entries: list[tuple[str, Iterable[str]]] = [
        *((rule.id, rule.sources) for rule in knowledge.rules.values()),
        *((variable.name, variable.sources) for variable in knowledge.variables.values()),
        *((f"torch {wheel.torch}", wheel.sources) for wheel in knowledge.wheels),
        *((index.id, index.sources) for index in knowledge.indexes),
        *((arch.gfx, arch.sources) for arch in knowledge.arches.values() if arch.cards),
    ]
    if failures is not None:
        entries += [(kind.id, kind.sources) for kind in failures.kinds.values()]
        entries += [(signature.id, signature.sources) for signature in failures.signatures]
    for name, sources in entries:
        if not tuple(sources):
            yield f"{name}: sources: has none"
    for key, source in knowledge.sources.items():
        if not source.date:
            yield f"{key}: date: has none"


def _dead_references(knowledge: Knowledge) -> Iterator[str]:
    used = {key for rule in knowledge.rules.values() for key in rule.sources}
    used |= {key for variable in knowledge.variables.values() for key in variable.sources}
    used |= {key for each in (*knowledge.wheels, *knowledge.indexes) for key in each.sources}
    for key in sorted(used - set(knowledge.sources)):
        yield f"{key}: is named as a source, and is not in sources.toml"


def _shadowed(knowledge: Knowledge) -> Iterator[str]:
    """Find two rules of which one always hides or repeats the other."""
    seen: dict[str, str] = {}
    for rule in knowledge.rules.values():
        key = repr((rule.when, rule.severity))
        if key in seen:
            yield f"{rule.id}: when: is the condition of {seen[key]}, too"
        seen.setdefault(key, rule.id)
    titles: dict[str, str] = {}
    for rule in knowledge.rules.values():
        if rule.title in titles:
            yield f"{rule.id}: title: is the title of {titles[rule.title]}, too"
        titles.setdefault(rule.title, rule.id)


def never_holds(condition: Condition) -> bool:
    """Tell whether no machine can fulfil a condition, as far as that can be seen from it."""
    if condition.any is not None:
        return all(never_holds(part) for part in condition.any)
    parts = condition.all if condition.all is not None else (condition,)
    if any(never_holds(part) for part in parts if part is not condition):
        return True
    by_fact: dict[str, list[Condition]] = {}
    for part in parts:
        if part.fact is not None and not part.fact.startswith(SEVERAL):
            by_fact.setdefault(part.fact, []).append(part)
    forbidden = [repr(inner) for part in parts for inner in part.none or ()]
    return any(_contradict(leaves) for leaves in by_fact.values()) or any(
        repr(part) in forbidden for part in parts
    )


def _contradict(leaves: list[Condition]) -> bool:
    """Tell whether one value cannot fit all comparisons."""
    operators = [operator_of(leaf) for leaf in leaves]
    absent = any(leaf.present is False for leaf in leaves)
    if absent and len(leaves) > 1:
        return True
    wanted = [{leaf.is_} for leaf in leaves if leaf.is_ is not None]
    wanted += [set(leaf.one_of) for leaf in leaves if leaf.one_of is not None]
    if wanted and not set.intersection(*wanted):
        return True
    least = max((leaf.at_least for leaf in leaves if leaf.at_least is not None), default=None)
    most = min((leaf.below for leaf in leaves if leaf.below is not None), default=None)
    if least is not None and most is not None and least >= most:
        return True
    return "version" in operators and _empty(
        ",".join(leaf.version for leaf in leaves if leaf.version is not None)
    )


def _empty(versions: str) -> bool:
    """Tell whether a range has nothing in it: its ends, and what is just beside them."""
    specifiers = SpecifierSet(versions)
    ends = [each.version.removesuffix(".*") for each in specifiers]
    tried = ["0", HIGHEST, *ends, *(f"{end}.1" for end in ends), *(_before(end) for end in ends)]
    return not any(specifiers.contains(version, prereleases=True) for version in tried)


def _before(version: str) -> str:
    """Return a version just below another."""
    release = list(Version(version).release)
    while release and release[-1] == 0:
        release.pop()
    if not release:
        return "0"
    release[-1] -= 1
    return ".".join(map(str, [*release, 999999]))
