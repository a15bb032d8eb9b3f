"""The size and age of each table of the knowledge base, and how to upgrade it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from datetime import date
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from rocsteady.doctor.knowledge.failures import known_messages, load_failures
from rocsteady.doctor.knowledge.gpu_rental import load_offers, load_speeds
from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.knowledge.options import load_other_options
from rocsteady.doctor.knowledge.reader import DataFolder, Knowledge
from rocsteady.doctor.knowledge.resume_arguments import load_arguments
from rocsteady.doctor.knowledge.state import (
    days_since,
    is_out_of_date,
    knowledge_state,
    last_checked,
)
from rocsteady.doctor.knowledge.trainers import load_trainers
from rocsteady.doctor.knowledge.values import KnowledgeEntry
from rocsteady.doctor.knowledge.waits import load_waits
from rocsteady.doctor.values import KnowledgeReport, KnowledgeTable, Watcher


def knowledge_report(
    knowledge: Knowledge, data: DataFolder, *, remedies: Iterable[Iterable[str]], today: date
) -> KnowledgeReport:
    """Return the size and age of each table; ``remedies`` are the sources of each remedy."""
    failures, waits = load_failures(data), load_waits(data)
    entries_of: dict[str, Iterable[tuple[str, KnowledgeEntry]]] = {
        "rules": knowledge.rules.items(),
        "variables": knowledge.variables.items(),
        "GPUs": knowledge.arches.items(),
        "wheels": [
            (f"{wheel.torch} for ROCm {wheel.rocm}", wheel)
            for wheel in (*knowledge.wheels, *knowledge.indexes)
        ],
    }
    old = sorted(
        (last_checked(entry, knowledge.sources), name, key)
        for name, entries in entries_of.items()
        for key, entry in entries
        if is_out_of_date(entry, knowledge.sources, today)
    )
    counts = Counter(name for _, name, _ in old)
    cited: dict[str, Iterable[Iterable[str]]] = {
        **{name: [it.sources for _, it in entries] for name, entries in entries_of.items()},
        "failures": [kind.sources for kind in failures.kinds.values()],
        "signatures": [signature.sources for signature in failures.signatures],
        "messages": [message.sources for message in known_messages(data)],
        "waits": [sign.sources for signs in (*waits.signs.values(), waits.loops) for sign in signs],
        "remedies": list(remedies),
        "harmful variables": [variable.sources for variable in harmful_variables(data)],
        "resume arguments": [argument.sources for argument in load_arguments(data)],
        "trainers": [trainer.sources for trainer in load_trainers(data)],
        "options": [option.sources for option in load_other_options(data)],
        "prices": [(offer.source,) for offer in load_offers(data)],
        "GPU speeds": [card.sources for card in load_speeds(data).values()],
    }
    dates = {key: source.date for key, source in knowledge.sources.items()}
    for source in knowledge.sources.values():  # some tables name a thread as owner/name#number
        dates[f"{source.owner}/{source.name}#{source.number}"] = source.date
    tables = []
    for name, entries in cited.items():
        newest = max((dates.get(key, "") for keys in entries for key in keys), default="")
        tables.append(
            KnowledgeTable(
                name=name,
                entries=len(list(entries)),
                newest_source=newest,
                age_days=days_since(newest, today),
                out_of_date=counts[name],
            )
        )
    upstream = data.document("upstream.toml", "left_out", "watcher")
    watchers = tuple(it for _, it in data.entries(upstream, "watcher", Watcher))
    ignored = dict.fromkeys((*knowledge.ignored, *data.ignored))
    return KnowledgeReport(
        state=knowledge_state(knowledge, today=today),
        tables=tuple(tables),
        out_of_date=tuple(f"{name}: {key}, last checked {day}" for day, name, key in old),
        ignored=tuple(ignored),
        upgrade=upgrade_command_here(),
        watchers=watchers,
    )


def upgrade_command_here() -> str:
    found = _installed("rocsteady-knowledge") or _installed("rocsteady")
    return upgrade_command(
        found.name if found else "rocsteady-knowledge",
        prefix=Path(sys.prefix),
        python=sys.executable,
        installer=(found.read_text("INSTALLER") or "").strip() if found else "",
    )


def upgrade_command(package: str, *, prefix: Path, python: str, installer: str) -> str:
    """Return the command for the way in which a package was installed below ``prefix``.

    pipx and uv leave a file of their own in each environment that they make for a tool. Their
    upgrade commands take the name of the tool, which is that of the environment.
    """
    tool = prefix.name
    if (prefix / "pipx_metadata.json").exists():
        # `pipx upgrade` leaves dependencies as they are
        if package != tool:
            return f"pipx runpip {tool} install --upgrade {package}"
        return f"pipx upgrade {tool}"
    if (prefix / "uv-receipt.toml").exists():
        return f"uv tool upgrade {tool}"
    if installer == "conda":
        return f"conda update --prefix {_quoted(str(prefix))} {package}"
    if installer == "uv":
        return f"uv pip install --python {_quoted(python)} --upgrade {package}"
    return f"{_quoted(python)} -m pip install --upgrade {package}"


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path
