"""What is known of one GPU in particular: rules that others do not have, and threads."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rocsteady.doctor.condition_match import CannotTell, Matcher
from rocsteady.doctor.facts import facts_of
from rocsteady.doctor.knowledge.hardware import Arch
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.rules import Rule, leaves
from rocsteady.doctor.knowledge.values import Severity, Source
from rocsteady.model import Value
from rocsteady.wording import plural

NO_GPU = "gfx0"  # of no family: what holds for it is not about one GPU
BRAND = re.compile(
    r"^(?:AMD )?(?:Radeon|Instinct|Ryzen)(?: (?:AI )?PRO| Instinct)? ", re.IGNORECASE
)


class GpuReports(Value, frozen=True, kw_only=True):
    arch: Arch
    rules: tuple[Rule, ...]
    threads: tuple[Source, ...]  # issues and discussions, the newest first


def gpu_reports(gfx: str, knowledge: Knowledge) -> GpuReports:
    arch = knowledge.arches[gfx]
    own = [rule for rule in knowledge.rules.values() if _is_about(rule, gfx, knowledge)]
    own.sort(key=lambda rule: list(Severity).index(rule.severity))
    cited = {key for rule in own for key in rule.sources} | set(arch.sources)
    cited |= {
        key
        for key, source in knowledge.sources.items()
        if mentions(source.title, (arch.gfx, *map(short_name, arch.cards)))
    }
    found = (knowledge.sources[key] for key in cited)
    threads = [source for source in found if source.number and "/pull/" not in source.url]
    threads.sort(key=lambda source: (source.date, source.name, source.number), reverse=True)
    return GpuReports(arch=arch, rules=tuple(own), threads=tuple(threads))


def short_name(card: str) -> str:
    """Return what people type: RX 9070 XT."""
    return BRAND.sub("", card)


def more_line(gfx: str, knowledge: Knowledge) -> str:
    """Return how to see what is known of a GPU, and how much that is; "" if it is nothing."""
    if gfx not in knowledge.arches:
        return ""
    found = gpu_reports(gfx, knowledge)
    parts = [
        plural(number, name)
        for number, name in (
            (len(found.rules), "known problem"),
            (len(found.threads), "thread"),
        )
        if number
    ]
    return f"rocsteady explain {gfx} ({', '.join(parts)})" if parts else ""


def _is_about(rule: Rule, gfx: str, knowledge: Knowledge) -> bool:
    """Return whether a rule can hold for this GPU, and not for just any."""
    if not any("gfx" in (leaf.fact or "") for leaf in leaves(rule.when)):
        return False
    return _can_hold(rule, gfx, knowledge) and not _can_hold(rule, NO_GPU, knowledge)


def _can_hold(rule: Rule, gfx: str, knowledge: Knowledge) -> bool:
    def unknown() -> tuple[str, ...]:
        raise CannotTell("a check")

    kinds = ("gpu", "gpu.discrete", "gpu.integrated", "gpu.not_offered")
    facts = facts_of({f"{kind}.gfx": gfx for kind in kinds})
    facts.variables_known = False
    checks = {leaf.check: unknown for leaf in leaves(rule.when) if leaf.check}
    return Matcher(facts, checks, knowledge.arches).match(rule.when).holds is not False


def mentions(text: str, names: Iterable[str]) -> int:
    """Count names in a text; RX 9070 XT is no RX 9070."""
    either = "|".join(re.escape(name) for name in names)
    return len(re.findall(rf"\b(?:{either})\b(?! (?:XT|XTX|GRE)\b)", text))
