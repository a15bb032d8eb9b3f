"""How old the knowledge is, and whether a machine is newer than it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date

from packaging.version import InvalidVersion, Version

from rocsteady.doctor.knowledge.gpu_names import gfx_of
from rocsteady.doctor.knowledge.hardware import Wheels
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.rules import Rule, leaves
from rocsteady.doctor.knowledge.values import KnowledgeEntry, Source
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.values import KnowledgeState
from rocsteady.wording import plural

OLD_AFTER = 90  # days
# For how many days an entry is taken for true after someone compared it with the current state.
INDEX_DAYS, VERSION_DAYS, BEHAVIOUR_DAYS = 30, 90, 365
RULES_NAMED = 3  # rules by name
CALENDAR = re.compile(r"(\d{4})\.(\d{1,2})\b")


def last_checked(entry: KnowledgeEntry, sources: Mapping[str, Source]) -> str:
    """Return the day on which someone checked an entry, or else the date of its newest source."""
    dates = (sources[key].date for key in entry.sources if key in sources)
    return entry.checked or max(dates, default="")


def days_allowed(entry: KnowledgeEntry) -> int:
    if isinstance(entry, Wheels):
        return INDEX_DAYS
    if isinstance(entry, Rule) and any(leaf.version for leaf in leaves(entry.when)):
        return VERSION_DAYS
    return BEHAVIOUR_DAYS


def is_out_of_date(entry: KnowledgeEntry, sources: Mapping[str, Source], today: date) -> bool:
    age = days_since(last_checked(entry, sources), today)
    return age is None or age > days_allowed(entry)


def not_checked_lately(rules: Iterable[Rule], sources: Mapping[str, Source], today: date) -> str:
    """Return a sentence about the rules that are out of date; "" if none is."""
    old = [rule.id for rule in rules if is_out_of_date(rule, sources, today)]
    if not old:
        return ""
    more = f" and {len(old) - RULES_NAMED} more" if len(old) > RULES_NAMED else ""
    return f"Out of date, so they may no longer hold: {', '.join(old[:RULES_NAMED])}{more}."


def knowledge_state(
    knowledge: Knowledge,
    machine: Machine | None = None,
    *,
    today: date,
    fired: Iterable[str] = (),
) -> KnowledgeState:
    released = CALENDAR.match(knowledge.version)
    month = f"{released[1]}-{released[2]:0>2}" if released else ""
    age = days_since(month, today) or 0
    notes = []
    if age > OLD_AFTER:
        notes.append(
            f"The knowledge base is {age} days old. To update it: rocsteady doctor --knowledge"
        )
    if knowledge.ignored:
        notes.append(
            f"{plural(len(knowledge.ignored), 'entry', 'entries')} of the knowledge base ignored:"
            " newer than this rocsteady. Details: rocsteady doctor --knowledge"
        )
    if machine is not None:
        notes += _beyond(machine, knowledge)
    rules = (knowledge.rules[rule] for rule in fired if rule in knowledge.rules)
    notes += filter(None, [not_checked_lately(rules, knowledge.sources, today)])
    return KnowledgeState(version=knowledge.version, age_days=age, notes=tuple(notes))


def days_since(day: str, today: date) -> int | None:
    """Return the days since a day, or since the first one of a month or year."""
    if not day:
        return None
    year, month, number = (int(part) for part in f"{day}-01-01".split("-")[:3])
    return max((today - date(year, month, number)).days, 0)


def _beyond(machine: Machine, knowledge: Knowledge) -> Iterator[str]:
    torch = machine.torch
    newest = (
        ("torch", torch.version if torch else None, str(knowledge.newest_torch())),
        ("ROCm", torch.rocm if torch else None, str(knowledge.newest_rocm())),
        ("Linux", machine.system.kernel, knowledge.kernel),
    )
    for what, version, last in newest:
        if version and what == "Linux" and machine.system.os != "linux":
            continue
        if _minor(version) > _minor(last):
            yield f"{what} {version} is newer than the knowledge base covers (up to {last})."
    for gfx in dict.fromkeys(gfx_of(gpu, knowledge) for gpu in machine.gpus.gpus):
        if gfx and gfx not in knowledge.arches:
            yield f"No entry of the knowledge base covers {gfx}."


def _minor(version: str | None) -> tuple[int, int]:
    """Return major and minor; a kernel's suffix is left out."""
    try:
        number = Version((version or "0").partition("-")[0].partition("+")[0])
    except InvalidVersion:
        return 0, 0
    return number.major, number.minor
