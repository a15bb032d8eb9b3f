"""Read the names in real ROCm libraries, and write rocsteady_knowledge/data/seen_in.toml.

    python tools/rocm_names.py CACHE

Fetches Debian's packages of ROCm and three wheels into CACHE (some 2 GB), unpacks them, and looks
for names of environment variables, for the error texts that our signatures search, and for the GPUs
that each library has code for. Libraries are never run, and none is copied into this repository.
Debian's mirror is the one that apt is configured with. Not part of the package.
"""

from __future__ import annotations

import argparse
import lzma
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from rocsteady.doctor.knowledge.failures import Where, load_failures
from rocsteady.doctor.knowledge.reader import DATA
from rocsteady.doctor.machine.system import FAMILIES
from rocsteady.doctor.machine.torch_build import gfx_names, gpu_targets, in_order
from rocsteady.doctor.machine.view import View
from rocsteady.system.disk_root import DiskRoot

# What is looked at: Debian's suite, the package, and what we call its library.
PACKAGES = (
    ("trixie", "libamdhip64-5", "libamdhip64"),
    ("sid", "libamdhip64-6", "libamdhip64"),
    ("experimental", "libamdhip64-7", "libamdhip64"),
    ("trixie", "libhsa-runtime64-1", "libhsa-runtime64"),
    ("sid", "libhsa-runtime64-1", "libhsa-runtime64"),
    ("experimental", "libhsa-runtime64-1", "libhsa-runtime64"),
    ("trixie", "libhsakmt1", "libhsakmt"),
    ("sid", "libmiopen1", "MIOpen"),
    ("experimental", "libmiopen1", "MIOpen"),
    ("sid", "librccl1", "RCCL"),
    ("experimental", "librccl1", "RCCL"),
    ("sid", "librocblas4", "rocBLAS"),
    ("experimental", "librocblas5", "rocBLAS"),
    ("sid", "libhipblaslt1", "hipBLASLt"),
    ("experimental", "libhipblaslt1", "hipBLASLt"),
    ("sid", "libhipblas2", "hipBLAS"),
    ("experimental", "libhipblas3", "hipBLAS"),
    ("sid", "libamd-comgr3", "comgr"),
    ("experimental", "libamd-comgr3", "comgr"),
    ("sid", "libhiprtc6", "hipRTC"),
    ("experimental", "libhiprtc7", "hipRTC"),
    ("sid", "libamd-smi27", "AMD SMI"),
    ("sid", "librocm-smi64-1", "ROCm SMI"),
    ("experimental", "librocm-smi64-7", "ROCm SMI"),
    ("sid", "hipcc", "hipcc"),
    ("experimental", "hipcc", "hipcc"),
)
WHEELS = (("amdsmi", "AMD SMI"), ("bitsandbytes", "bitsandbytes"))  # JAX is one file of gigabytes
SHORTEST = 8  # a text that says something
NAME = "[A-Z][A-Z0-9]{1,15}(_[A-Z0-9]+)+"
MORE_FAMILIES = ("BNB_", "JAX_", "XLA_", "HIPRTC_", "HIPCC_", "TENSILE_", "COMGR_")
# What shares a prefix with variables and is something else: states, flags and kinds in messages.
NOT_VARIABLES = re.compile(
    r"_(?:STATUS|ERROR|SUCCESS|INVALID)(?:_|$)|^(?:HSA|HIP|NCCL|AMD|MIOPEN)_(?:STATUS|ERROR|EVENT"
    r"|DEVICE_TYPE|ATTRIBUTE|MEMORY_TYPE|AGENT|REGION|EXT|VEN|ISA|EXECUTABLE|CODE|SYMBOL|SYSTEM)_"
)


def main() -> None:
    """Fetch, read, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cache", type=Path)
    cache = parser.parse_args().cache
    names: dict[str, dict[str, list[str]]] = {}
    texts: dict[str, dict[str, list[str]]] = {}
    code: dict[str, dict[str, tuple[str, ...]]] = {}
    versions: dict[str, list[str]] = {}
    wanted = _literals()
    for library, version, folder in (*_wheels(cache), *_debian(cache)):
        sys.stderr.write(f"{library} {version}\n")
        versions.setdefault(library, []).append(version)
        found, said = _look(folder, wanted)
        for name in found:
            names.setdefault(name, {}).setdefault(library, []).append(version)
        for text in said:
            texts.setdefault(text, {}).setdefault(library, []).append(version)
        if gpus := _code(folder):
            code.setdefault(library, {})[version] = gpus
    (DATA / "seen_in.toml").write_text(_written(versions, names, texts, code), encoding="utf-8")


def _literals() -> tuple[bytes, ...]:
    """Return what our signatures look for in what programs print."""
    printed = (it for it in load_failures().signatures if it.where in (Where.LOG, Where.EXCEPTION))
    return tuple(
        sorted({text.encode() for it in printed for text in it.literals if len(text) >= SHORTEST})
    )


def _debian(cache: Path) -> Iterator[tuple[str, str, Path]]:
    sources = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    lines = "\n".join(path.read_text() for path in sources if path.is_file())
    mirror = re.search(r"https?://\S+/debian(?=\s|$)", lines, re.MULTILINE)
    if mirror is None:
        raise SystemExit("apt names no mirror of Debian")
    for suite, package, library in PACKAGES:
        entry = _entry(cache, mirror.group(), suite, package)
        file = cache / Path(entry["Filename"]).name
        if not file.exists():
            _fetch(f"{mirror.group()}/{entry['Filename']}", file)
        folder = file.with_suffix("")
        if not folder.exists():
            subprocess.run(["dpkg-deb", "-x", file, folder], check=True)
        yield library, re.split(r"[-+~]", entry["Version"])[0], folder


def _entry(cache: Path, mirror: str, suite: str, package: str) -> dict[str, str]:
    index = cache / f"{suite}.Packages"
    if not index.exists():
        cache.mkdir(parents=True, exist_ok=True)
        packed = index.with_suffix(".xz")
        _fetch(f"{mirror}/dists/{suite}/main/binary-amd64/Packages.xz", packed)
        index.write_bytes(lzma.decompress(packed.read_bytes()))
    text = index.read_text(encoding="utf-8")
    start = text.index(f"Package: {package}\n")
    entry = text[start : text.index("\n\n", start)]
    return dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line)


def _wheels(cache: Path) -> Iterator[tuple[str, str, Path]]:
    for project, library in WHEELS:
        folder = cache / project
        if not folder.exists():
            command = [sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target"]
            subprocess.run([*command, folder, project], check=True)
        info = next(folder.glob("*.dist-info")).name
        yield library, info.removesuffix(".dist-info").rpartition("-")[2], folder


def _fetch(address: str, file: Path) -> None:
    part = file.with_name(f"{file.name}.part")
    with urllib.request.urlopen(address, timeout=60) as answer, part.open("wb") as out:
        while piece := answer.read(1 << 20):
            out.write(piece)
    part.rename(file)


def _look(folder: Path, wanted: tuple[bytes, ...]) -> tuple[set[str], set[str]]:
    """Return the variables and the texts of every library, program and script below ``folder``."""
    names: set[str] = set()
    texts: set[str] = set()
    patterns = folder.parent / "texts"
    patterns.write_bytes(b"\n".join(wanted))
    families = (*FAMILIES, *MORE_FAMILIES)
    for path in folder.rglob("*"):
        kernels = path.suffix in (".co", ".hsaco", ".dat", ".kdb", ".txt", ".gz")
        if path.is_symlink() or not path.is_file() or kernels:
            continue
        names.update(found for found in _grep("-oE", NAME, path) if found.startswith(families))
        texts.update(_grep("-oF", "-f", str(patterns), path))
    return {name for name in names if not NOT_VARIABLES.search(name)}, texts


def _grep(*arguments: str | Path) -> set[str]:
    """Search a binary file; much faster than Python does."""
    found = subprocess.run(
        ["grep", "-ahw", *arguments], capture_output=True, check=False, env={"LC_ALL": "C"}
    )
    return set(found.stdout.decode("ascii", "replace").splitlines())


def _code(folder: Path) -> tuple[str, ...]:
    """Return the GPUs that the files of a package have code for."""
    view = View(DiskRoot(folder))
    found = gfx_names(path.name for path in folder.rglob("*gfx*"))
    for path in folder.rglob("*.so*"):
        if not path.is_symlink():
            found |= set(gpu_targets(view, f"/{path.relative_to(folder)}"))
    return in_order(found)


def _written(
    versions: dict[str, list[str]],
    names: dict[str, dict[str, list[str]]],
    texts: dict[str, dict[str, list[str]]],
    code: dict[str, dict[str, tuple[str, ...]]],
) -> str:
    def places(table: dict[str, list[str]]) -> str:
        return "; ".join(f"{library} {' '.join(there)}" for library, there in table.items())

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    lines = [
        "# What real ROCm libraries hold, read from Debian's packages and from PyPI's wheels.",
        "# Written by tools/rocm_names.py; not edited by hand. A name that a library holds is",
        "# nearly always one that it reads, and a few are words of its messages.",
        "",
        "[libraries]",
        *(f"{quoted(name)} = {quoted(' '.join(there))}" for name, there in versions.items()),
        "",
        "[names]",
        *(f"{name} = {quoted(places(names[name]))}" for name in sorted(names)),
        "",
        "[texts]",
        *(f"{quoted(text)} = {quoted(places(texts[text]))}" for text in sorted(texts)),
        "",
        "[code]",
        *(
            f"{quoted(f'{library} {version}')} = {quoted(' '.join(gpus))}"
            for library, table in code.items()
            for version, gpus in table.items()
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
