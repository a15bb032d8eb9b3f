"""The lines of a script around the one where it stands, as the file has them now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

from rocsteady_train.untrusted_file import read_head

from rocsteady.model import Value
from rocsteady.system.parallel import run_all

CONTEXT_LINES = 3  # lines on either side
SCRIPT_BYTES = 2 << 20  # bytes of a script
READ_WITHIN = timedelta(seconds=1)  # a drive that is gone must not cost the report


class SourceLine(Value, frozen=True, kw_only=True):
    number: int
    text: str
    blamed: bool


class SourceExcerpt(Value, frozen=True, kw_only=True):
    file: str
    lines: tuple[SourceLine, ...]
    changed: bool  # since then


def source_around(
    file: str, line: int, folders: Sequence[Path], *, at: float
) -> SourceExcerpt | None:
    """Find a file that a stack names, in the folders that it may be in, and read around a line."""
    whole = Path(file)
    places = [whole] if whole.is_absolute() else [folder / file for folder in folders]
    if not whole.is_absolute():
        places += [folder / whole.name for folder in folders]

    def look() -> SourceExcerpt | None:
        path = next((each for each in places if each.is_file()), None)
        if path is None:
            return None
        lines = read_head(path, SCRIPT_BYTES).decode("utf-8", "replace").splitlines()
        if not 0 < line <= len(lines):
            return None
        return SourceExcerpt(
            file=whole.name,
            lines=_around(lines, line),
            changed=path.stat().st_mtime > at,
        )

    return run_all({"source": look}, within=READ_WITHIN, at_once=1).results.get("source")


def _around(lines: Sequence[str], line: int) -> tuple[SourceLine, ...]:
    first, last = max(1, line - CONTEXT_LINES), min(len(lines), line + CONTEXT_LINES)
    shown = dedent("\n".join(lines[first - 1 : last]).expandtabs(4)).split("\n")
    return tuple(
        SourceLine(number=number, text=text, blamed=number == line)
        for number, text in enumerate(shown, start=first)
    )


def script_folders(project: Path, command: Sequence[str]) -> tuple[Path, ...]:
    """Return where the files of a command may be: its folder, and those of its scripts."""
    scripts = (project / word for word in command if word.endswith(".py"))
    return tuple(dict.fromkeys((project, *(script.parent for script in scripts))))
