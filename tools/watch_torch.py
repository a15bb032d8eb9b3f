"""Compare a release of torch with the one before: searches, variables, and texts of errors.

    python tools/watch_torch.py                 the newest release on PyPI
    python tools/watch_torch.py 2.14.1 2.15.0   these, one after the other
    python tools/watch_torch.py torch.whl       wheels on disk, or folders that have torch/

Reads headers and Python files, of the wheel for macOS, which is the smallest; nothing is imported.
tools/watch_torch.toml has the searches and the entries that rest on them; the variables are those
of AMD's libraries and PyTorch's own, the texts those that signatures look for. See tools/watch.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version
from torch_names import Archive, Folder, Release
from watch import Watch, run

SEARCHES = Path(__file__).with_suffix(".toml")
VARIABLE = re.compile(
    r"""["']((?:PYTORCH|TORCH_NCCL|TORCH_BLAS|TORCH_ROCM|HIP|HSA|ROC[MR]?|AMD|MIOPEN|AOTRITON|[NR]CCL)_[A-Z0-9_]+)["']"""
)
NO_VARIABLE = re.compile(
    r"_(STATUS|ERROR|SUCCESS|R_[0-9])|^HIP_(KERNEL|VERSION|MAX|SUCCESS)|VERSION"
)
ENDS = (".h", ".hpp", ".cuh", ".py")
ELSEWHERE = ("include/ATen/ops/", "testing/", "hipify/", "/test/", "_cpp_extension_versioner")
SHORTEST = 12  # letters of a text that says something
PIP = (sys.executable, "-m", "pip", "-q", "download", "--no-deps", "--only-binary=:all:")
MAC = ("--platform", "macosx_14_0_arm64", "--python-version", "312", "--implementation", "cp")


def releases(wanted: list[str], folder: Path) -> Iterator[Release]:
    for each in wanted or [""]:
        path = Path(each)
        if each and path.is_dir():
            yield Folder(path)
            continue
        if not (each and path.exists()):
            where = folder / (each or "newest")
            name = f"torch=={each}" if each else "torch"
            subprocess.run([*PIP, *MAC, "-d", where, name], check=True)
            path = next(where.glob("torch-*.whl"))
        yield Archive(path, path.name.split("-")[1])


def contents(release: Release, searches: list[dict[str, str]], texts: set[str]) -> dict[str, str]:
    """Return what is looked for, and what was found."""
    found: dict[str, str] = {f"search: {it['what']}": "nothing" for it in searches}
    patterns = {it["in"]: [] for it in searches}
    for search in searches:
        patterns[search["in"]].append(search)
    for name in release.names():
        if not name.endswith(ENDS) or any(part in name for part in ELSEWHERE):
            continue
        text = release.read(name).decode("utf-8", "replace")
        for search in patterns.get(name, ()):
            matches = re.finditer(search["pattern"], text, re.MULTILINE)
            values = ["".join(filter(None, match.groups())) for match in matches]
            found[f"search: {search['what']}"] = " ".join(values) or "nothing"
        for variable in VARIABLE.findall(text):
            if not NO_VARIABLE.search(variable):
                found[f"variable {variable}"] = "read"
        found.update((f"text {it!r}", "there") for it in texts if it in text)
    return found


def literals(watch: Watch) -> set[str]:
    files = sorted((watch.data / "signatures").glob("*.toml"))
    rows = [row for it in files for row in tomllib.loads(it.read_text("utf-8"))["signature"]]
    printed = (text for row in rows for text in row.get("literals", ()))
    return {text for text in printed if len(text) >= SHORTEST}


def look(watch: Watch) -> None:
    searches = tomllib.loads(SEARCHES.read_text(encoding="utf-8"))["search"]
    texts = literals(watch)
    rests = {f"search: {it['what']}": ", ".join(it["for"]) for it in searches}
    with tempfile.TemporaryDirectory() as folder:
        for release in releases(watch.args, Path(folder)):
            known = watch.seen.get("torch", {}).get("at", "0")
            if watch.args or Version(release.version) > Version(known):
                watch.compare("torch", contents(release, searches, texts), release.version)
    ours = {row["name"] for row in watch.table("variables.toml")["variable"]}
    told = [line for line in watch.differs if ": new text" not in line]
    told = [it for it in told if ": gone variable" not in it or it.rpartition(" ")[2] in ours]
    watch.differs = [_worded(line, ours, rests) for line in told]


def _worded(line: str, ours: set[str], rests: dict[str, str]) -> str:
    """Add what of ours rests on it."""
    search = next((more for name, more in rests.items() if name in line), "")
    if search:
        return f"{line}; see {search}"
    if ": gone variable" in line:
        return f"{line}; variables.toml has it"
    if ": new variable" in line and line.rpartition(" ")[2] not in ours:
        return f"{line}; variables.toml lacks it"
    return line


if __name__ == "__main__":
    sys.exit(run("torch", look))
