"""The pages about single GPUs, made from the knowledge base.

``python docs/gpu_pages.py`` writes docs/gpus/; the documentation does the same when it is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.gpu_reports import GpuReports, gpu_reports, mentions, short_name
from rocsteady.doctor.knowledge.failures import KnownFailure, load_failures
from rocsteady.doctor.knowledge.hardware import Arch, WheelIndex, WheelRelease
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.rules import PLACEHOLDER, Rule, leaves
from rocsteady.doctor.knowledge.state import last_checked
from rocsteady.doctor.knowledge.values import Backing, Severity, Source
from rocsteady.doctor.wheels import version_span
from rocsteady.wording import plural

HERE = Path(__file__).parent
SYSTEMS = {"linux": "Linux", "wsl": "WSL2", "windows": "Windows"}
LABELS = {Severity.BLOCKS: "blocks training", Severity.RISKS: "risk", Severity.NOTES: "note"}
BELOW = ("kernel.", "driver.", "gpu.firmware", "firmware.", "kernel")  # facts below ROCm


def plain(text: str) -> str:
    """Keep a text from the knowledge base from being read as Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>#|$])", r"\\\1", " ".join(text.split()))


def source_line(source: Source) -> str:
    """Name a source so that it can be found even if its address dies."""
    number = f" #{source.number}" if source.number is not None else ""
    words = plain(f"{source.owner}/{source.name}{number}: {source.title} ({source.date})")
    return f"{words} <{source.url}>" if source.url else words


def link(source: Source) -> str:
    """Name a source briefly, with its address and its day."""
    number = f"#{source.number}" if source.number is not None else ""
    name = plain(f"{source.owner}/{source.name}{number}")
    return f"[{name}]({source.url}) ({source.date})" if source.url else f"{name} ({source.date})"


class GpuPages:
    """All pages, by the file that each is written to."""

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge
        self.failures: Mapping[str, KnownFailure] = load_failures().kinds
        self.reports = [gpu_reports(gfx, knowledge) for gfx in knowledge.arches]
        texts = [source.title for source in knowledge.sources.values()]
        texts += [rule.why for rule in knowledge.rules.values()]
        self._text = "\n".join(texts)

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each file."""
        yield "index.md", "\n\n".join(self._index())
        for reports in self.reports:
            yield f"{reports.arch.gfx}.md", "\n\n".join(self._page(reports))

    def _index(self) -> Iterator[str]:
        yield "# GPUs"
        yield (
            "What is known of training with PyTorch on single AMD GPUs: builds, kernels, drivers,"
            " what goes wrong and what helped, with sources. Generated from the knowledge base."
        )
        yield "\n".join(
            f"- [{reports.arch.gfx}]({reports.arch.gfx}.md):"
            f" {plain(', '.join(_cards(reports.arch)))}. {_counted(reports)}."
            for reports in reversed(self.reports)
        )
        pages = "\n".join(reports.arch.gfx for reports in self.reports)
        yield f"```{{toctree}}\n:hidden:\n\n{pages}\n```"

    def _page(self, reports: GpuReports) -> Iterator[str]:
        arch = reports.arch
        name = self._best_known(arch)
        yield (
            f'---\nmyst:\n  html_meta:\n    description: "PyTorch training on {name} ({arch.gfx}):'
            ' builds, kernels, drivers, hangs and workarounds, with sources"\n---'
        )
        yield f"# PyTorch training on {plain(name)} ({arch.gfx})"
        yield (
            f"{plain(arch.name)}. Cards: {plain(', '.join(_cards(arch)))}."
            f" {_sources(arch.sources, self.knowledge)}"
        )
        yield (
            "Every statement names its source. None has been confirmed on hardware by rocsteady's"
            " authors, unless it says so. To check your own machine: `rocsteady doctor`."
        )
        yield from self._builds(arch)
        below = [rule for rule in reports.rules if _is_below_rocm(rule)]
        above = [rule for rule in reports.rules if not _is_below_rocm(rule)]
        yield "## Kernel, driver and firmware"
        yield from self._rules(below, arch)
        yield "## What goes wrong, and what helps"
        yield from self._rules(above, arch)
        yield "## Threads"
        if reports.threads:
            yield "\n".join(
                f"- Reported in {link(source)}, not confirmed: {plain(source.title)}"
                for source in reports.threads
            )
        else:
            yield f"None of the threads that the knowledge base cites names {arch.gfx}."

    def _best_known(self, arch: Arch) -> str:
        """Return the card that is named most often; one that people have at home comes first."""

        def known(card: str) -> tuple[bool, int]:
            name = short_name(card)
            return name.startswith("RX"), mentions(self._text, (name,))

        best = max(_cards(arch), key=known)
        if short_name(best).startswith(("RX", "MI")):
            return short_name(best)
        code_name = arch.name.partition(", ")[2]
        return ", ".join(dict.fromkeys(filter(None, (code_name, best))))

    def _builds(self, arch: Arch) -> Iterator[str]:
        yield "## PyTorch builds"
        if note := " ".join(filter(None, (arch.note, arch.linux_note))):
            yield f"{plain(note)} {_sources(arch.sources, self.knowledge)}"
        rows = list(self._build_rows(arch))
        if rows:
            yield "\n".join(rows)
            yield f"To install one: `rocsteady wheels --gpu {arch.gfx}`."
        else:
            yield f"No build that the knowledge base lists has code for {arch.gfx}."

    def _build_rows(self, arch: Arch) -> Iterator[str]:
        wheels: Iterable[WheelRelease | WheelIndex] = (
            *self.knowledge.indexes,
            *reversed(self.knowledge.wheels),
        )
        for wheel in wheels:
            systems = wheel.systems if isinstance(wheel, WheelIndex) else ("linux", "wsl")
            systems = tuple(each for each in systems if not arch.systems or each in arch.systems)
            if arch.gfx not in wheel.arches or not systems:
                continue
            maker, tested = "pytorch.org", "which GPUs it is tested on is not known"
            if isinstance(wheel, WheelIndex):
                maker, tested = "AMD", _backed(wheel, arch.gfx, systems)
            systems_named = ", ".join(SYSTEMS[each] for each in systems)
            yield (
                f"- PyTorch {version_span(wheel.torch)} for ROCm {wheel.rocm}, by {maker}, for"
                f" {systems_named}; {tested}."
                f" {_sources(wheel.sources, self.knowledge)}"
            )

    def _rules(self, rules: list[Rule], arch: Arch) -> Iterator[str]:
        if not rules:
            yield f"The knowledge base has nothing about {arch.gfx} here."
        for rule in rules:
            label = LABELS[rule.severity]
            yield f"### {plain(_without_placeholders(rule.title, arch.gfx))} ({label})"
            yield plain(_without_placeholders(rule.why, arch.gfx))
            kinds = [self.failures[kind].title for kind in rule.leads_to if kind in self.failures]
            if kinds:
                yield f"It can show as: {plain('; '.join(kinds))}."
            yield f"What helps: {plain(_without_placeholders(rule.fix.text, arch.gfx))}"
            if rule.fix.commands:
                lines = [_without_placeholders(line, arch.gfx) for line in rule.fix.commands]
                if any("<" in line for line in lines):  # which index and build depends on more
                    lines = [f"rocsteady wheels --gpu {arch.gfx}"]
                yield "\n".join(["```text", *lines, "```"])
            versions = ", ".join(f"{name} {span}" for name, span in rule.valid.items())
            since = min(self.knowledge.sources[key].date for key in rule.sources)
            checked = last_checked(rule, self.knowledge.sources)
            confirmed = ", ".join(rule.confirmed_on)
            yield " ".join(
                filter(
                    None,
                    (
                        f"First source of {since}, last checked {checked}.",
                        f"Known for {plain(versions)}." if versions else "",
                        f"Confirmed on {plain(confirmed)}." if confirmed else "",
                        f"`rocsteady explain {rule.id}`.",
                        _sources(rule.sources, self.knowledge),
                    ),
                )
            )


def _backed(wheel: WheelIndex, gfx: str, systems: Iterable[str]) -> str:
    """Say who vouches for a build, system by system."""
    words = {
        Backing.SUPPORTED: "AMD supports it on",
        Backing.TESTED: "TheRock tests it on",
        Backing.BUILT: "it is built only, for",
    }
    on = {each: [SYSTEMS[it] for it in systems if wheel.backing(gfx, it) is each] for each in words}
    return "; ".join(f"{words[each]} {', '.join(on[each])}" for each in words if on[each])


def _counted(reports: GpuReports) -> str:
    counts = (len(reports.rules), "known problem"), (len(reports.threads), "thread")
    words = [plural(number, word) for number, word in counts if number]
    return ", ".join(words) or "Nothing known beyond its builds"


def _cards(arch: Arch) -> tuple[str, ...]:
    return arch.cards or (arch.name.rpartition(", ")[2],)


def _is_below_rocm(rule: Rule) -> bool:
    return any((leaf.fact or "").startswith(BELOW) for leaf in leaves(rule.when))


def _without_placeholders(text: str, gfx: str) -> str:
    return PLACEHOLDER.sub(lambda found: gfx if found[1] == "gpu.gfx" else f"<{found[1]}>", text)


def _sources(keys: Iterable[str], knowledge: Knowledge) -> str:
    return f"Sources: {_links(keys, knowledge)}." if keys else ""


def _links(keys: Iterable[str], knowledge: Knowledge) -> str:
    return ", ".join(link(knowledge.sources[key]) for key in keys)


def write(folder: Path, files: Iterable[tuple[str, str]]) -> None:
    """Write pages, but leave equal ones alone, so that nothing is built twice."""
    folder.mkdir(exist_ok=True)
    for name, text in files:
        page = folder / name
        if not page.exists() or page.read_text(encoding="utf-8") != f"{text}\n":
            page.write_text(f"{text}\n", encoding="utf-8")


def write_gpu_pages(folder: Path = HERE / "gpus") -> None:
    """Write all pages."""
    write(folder, GpuPages(doctors_knowledge()).files())


if __name__ == "__main__":
    write_gpu_pages()
