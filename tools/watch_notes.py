"""Compare AMD's release notes and install pages with the tables: issues, GPUs, versions, images.

    python tools/watch_notes.py             see tools/watch.py for the options

Reads the sources of AMD's documentation (Markdown, YAML, reStructuredText) and TheRock's table of
GPUs. A known issue needs a rule or another entry that cites it; a resolved one, an upper bound.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from packaging.version import Version
from refresh import minor, version_range
from watch import Watch, run

GITHUB = "https://raw.githubusercontent.com/"
DOCS = f"{GITHUB}ROCm/rocm-docs/HEAD/docs/"
NOTES, GPUS = f"{DOCS}about/release-notes.md", f"{DOCS}data/gpus.yaml"
INSTALL = (
    f"{GITHUB}AMD-Ecosystem/ai-ecosystem/HEAD/docs/frameworks/pytorch/include/rocm{{}}-{{}}.rst"
)
TESTED = f"{GITHUB}ROCm/TheRock/HEAD/SUPPORTED_GPUS.md"
ISSUE = re.compile(r"github\.com/([\w.-]+/[\w.-]+)/issues/(\d+)")
VERSION = re.compile(r"\bROCm (\d+\.\d+\.\d+)")
GPU = re.compile(r"^  AMD (.+):\n    gfx: (gfx\w+)$", re.MULTILINE)
SELECTED = re.compile(r"( *)\.\. selected:: ([\w-]+)=(\S+)")
TORCH = re.compile(r"\btorch\[device-(\w+)\]==([\d.]+)")
IMAGE = re.compile(r"rocm/pytorch:rocm([\d.]+)_\w+\.\d+_py[\d.]+_pytorch_release_([\d.]+)")
READY = re.compile(r"^\|.*?(gfx\w+)[* ]*\|[^|]*\|[^|]*\|([^|]*)\|\s*$")


class Build(NamedTuple):
    gpu: str
    torch: str
    system: str


def issues(notes: str, kind: str) -> dict[str, str]:
    """Return the titles of the known or resolved issues by number, as ROCm/TheRock#7699."""
    parts = re.split(r"^## ", notes, flags=re.MULTILINE)
    found = {}
    for part in parts:
        if f"{kind} issues" in part.split("\n", 1)[0]:
            for entry in re.split(r"^### ", part, flags=re.MULTILINE)[1:]:
                title = entry.split("\n", 1)[0].strip()
                for repository, number in ISSUE.findall(entry) or [("without a number:", title)]:
                    found[f"{repository}#{number}"] = title
    return found


def builds(page: str) -> Iterator[Build]:
    """Yield what an install page has, by the selections that a command stands below."""
    selected: list[tuple[int, str, str]] = []
    for line in page.splitlines():
        if match := SELECTED.match(line):
            indent = len(match[1])
            selected = [it for it in selected if it[0] < indent]
            selected.append((indent, match[2], match[3]))
        for gpu, torch in TORCH.findall(line):
            yield Build(gpu, torch, {key: value for _, key, value in selected}.get("os", ""))


def tested(page: str) -> dict[str, list[str]]:
    """Return what TheRock's tables call release-ready, by the system in their headings."""
    found: dict[str, list[str]] = {"linux": [], "windows": []}
    system = ""
    for line in page.splitlines():
        if line.startswith("#"):
            system = next((it for it in found if it in line.lower()), "")
        elif system and (match := READY.match(line)) and match[2].strip():
            found[system].append(match[1])
    return found


def _gpus(watch: Watch, what: str, listed: Iterable[str], ours: Iterable[str]) -> None:
    there, here = {*listed} - {"all"}, {*ours}
    if there and there - here:
        watch.holds.append(f"{what}: we lack {' '.join(sorted(there - here))}")
    if there and here - there:
        watch.holds.append(f"{what}: only we have {' '.join(sorted(here - there))}")


def look(watch: Watch) -> None:
    notes = watch.page(NOTES)
    release = max(VERSION.findall(notes), key=Version, default="")
    if not release:
        watch.failed.append(f"{NOTES}: no version in it")
        return
    watch.at = f"ROCm {release}"
    cited = watch.citing()
    for issue, title in issues(notes, "known").items():
        if issue not in cited:
            watch.unknown(issue, "known issue", title)
    for issue in issues(notes, "resolved"):
        watch.resolved(issue, "resolved")
    _hardware(watch, watch.page(GPUS))
    there = [*builds(watch.page(INSTALL.format(release, "pip-install")))]
    images = {*IMAGE.findall(watch.page(INSTALL.format(release, "docker")))}
    ours = {(row["rocm"], row["torch"]) for row in watch.table("exports.toml")["image"]}
    for rocm, torch in sorted(images - ours - {(f"{rocm}.0", torch) for rocm, torch in ours}):
        watch.holds.append(f"image rocm{rocm} with torch {torch}: not in exports.toml")
    _wheels(watch, release, there)


def _hardware(watch: Watch, page: str) -> None:
    arches = watch.table("gpus.toml")["arch"]
    cards = {(card, arch["gfx"]) for arch in arches for card in arch.get("cards", ())}
    for card, gfx in sorted({*GPU.findall(page)} - cards):
        watch.holds.append(f"AMD {card} ({gfx}): not in gpus.toml")


def _wheels(watch: Watch, release: str, there: list[Build]) -> None:
    rocm = minor(release)
    rows = [it for it in watch.table("wheels.toml")["index"] if it["rocm"] == rocm]
    if not rows:
        watch.holds.append(f"ROCm {release}: wheels.toml has no index for it")
        return
    row = rows[0]
    if there and (torch := version_range({minor(it.torch) for it in there})) != row["torch"]:
        watch.holds.append(f"torch for ROCm {rocm}: AMD has {torch}, {row['id']} {row['torch']}")
    supported, ready = row.get("supported", {}), tested(watch.page(TESTED))
    linux = [gfx for _, gfx in GPU.findall(watch.page(GPUS))]
    windows = [it.gpu for it in there if it.system == "windows"]
    _gpus(watch, f"AMD lists for Linux {rocm}", linux, supported.get("linux", ()))
    _gpus(watch, f"AMD lists for Windows {rocm}", windows, supported.get("windows", ()))
    for system, listed in ready.items():
        ours = row.get("tested", {}).get(system, ())
        _gpus(watch, f"TheRock calls release-ready on {system}", listed, ours)


if __name__ == "__main__":
    sys.exit(run("release notes", look))
