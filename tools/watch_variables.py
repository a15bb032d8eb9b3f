"""Compare the environment variables that ROCm's sources read with the last release, and with ours.

    python tools/watch_variables.py RELEASE FOLDER...   sources of that release, unpacked

Reads ROCr's flag.h, HIP's flags.hpp, and the parameters of RCCL and MIOpen wherever their sources
have them. With --write, an entry of variables.toml whose name was found says so in found_in, by
which a machine has checked that the name is read; its meaning stays with a person. What is gone,
is new, or has another default is printed. The workflow fetches the folders; see tools/watch.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from refresh import Change, rows_of, write
from watch import Watch, run

FLAG = re.compile(r'(?:GetEnvVar|IsEnvVarSet)\("(\w+)"\)(?:;\s*\w+ = \(var == "(\d)"\))?')
FLAGS = re.compile(r"^(?:release|debug|release_on_stg)\(\w+, *(\w+), *([^,]+),", re.MULTILINE)
PARAMETER = re.compile(r'\b([NR]CCL)_PARAM\(\w+, *"(\w+)", *([^;]*)\);')
QUOTED = re.compile(r'"([NR]CCL_[A-Z0-9_]+)"')
GETENV = re.compile(r'\bgetenv\("((?:HSA|HSAKMT|HIP|AMD)_\w+)"\)')
PLACES = {"/rccl/": "RCCL", "/rocr-runtime/": "ROCr", "/rocclr/": "HIP", "/hipamd/": "HIP"}
MIOPEN = re.compile(r"^MIOPEN_DECLARE_ENV_VAR_\w+\((\w+)(?:, *([^)]+))?\)", re.MULTILINE)
ENDS = {".h", ".hpp", ".cc", ".cpp", ".cu", ".c", ".in"}


def read_by(path: Path, text: str) -> Iterator[tuple[str, str, str]]:
    """Yield who reads a variable, its name, and its default; of ROCr, the value it asks for."""
    if path.name == "flag.h":
        yield from (("ROCr", name, value) for name, value in FLAG.findall(text))
    elif path.name == "flags.hpp":
        yield from (("HIP", name, value.strip()) for name, value in FLAGS.findall(text))
    yield from (("RCCL", f"{it[0]}_{it[1]}", it[2].strip()) for it in PARAMETER.findall(text))
    place = next((it for part, it in PLACES.items() if part in path.as_posix()), "")
    if place == "RCCL":
        yield from (("RCCL", name, "") for name in QUOTED.findall(text))
    elif place:
        yield from ((place, name, "") for name in GETENV.findall(text))
    yield from (("MIOpen", name, value.strip()) for name, value in MIOPEN.findall(text))


def variables(folders: list[Path]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in ENDS and path.is_file() and "test" not in path.parts:
                for reader, name, value in read_by(path, path.read_text("utf-8", "replace")):
                    here = found.setdefault(reader, {})
                    here[name] = value or here.get(name, "")
    return found


def look(watch: Watch) -> None:
    release, *folders = watch.args or ("no release",)
    found = variables([Path(it) for it in folders])
    if not found:
        watch.failed.append(f"ROCm {release}: no variable in {' '.join(folders) or 'no folder'}")
    for reader, names in sorted(found.items()):
        watch.compare(reader, names, release)
    changes = []
    rows = rows_of(watch.data / "variables.toml")
    for number, (_, row) in enumerate(rows):
        if row["read_by"] in found:
            if row["name"] in found[row["read_by"]]:
                changes.append(Change("variables.toml", number, "found_in", f"ROCm {release}"))
            elif row.get("found_in"):
                watch.holds.append(f"{row['name']}: {row['read_by']} {release} does not read it")
    if watch.writes:
        write(watch.data, changes)
    ours = {row["name"] for _, row in rows}
    watch.differs = [
        f"{line}; variables.toml has it" if line.rpartition(" ")[2] in ours else line
        for line in watch.differs
    ]


if __name__ == "__main__":
    sys.exit(run("variables", look))
