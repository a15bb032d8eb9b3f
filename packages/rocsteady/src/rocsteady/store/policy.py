"""What an administrator allows on a machine: ``/etc/rocsteady.toml``. Optional.

::

    mode = "observe"                         # never stop or restart a run; "retry": change nothing
    workarounds = ["retry", "loader-inline"] # the only ones that may be used
    journals = "/scratch/rocsteady"          # a folder in which everybody may create folders

It is no protection against a user, who can train without rocsteady as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from rocsteady_train.untrusted_file import read_regular

from rocsteady.errors import JobError
from rocsteady.model import Value
from rocsteady.toml import parse_toml

FILE = Path("/etc/rocsteady.toml")
VARIABLE = "ROCSTEADY_POLICY"  # the path of another file
SIZE_LIMIT = 64 * 1024  # bytes


class Mode(Enum):
    OBSERVE = "observe"  # never stop or restart a run
    RETRY = "retry"  # restart, and change no setting
    FULL = "full"


class Policy(Value, frozen=True, kw_only=True):
    """What is allowed. Without a file, everything that the user wants."""

    path: str = ""  # "": there is no file
    mode: Mode = Mode.FULL
    workarounds: tuple[str, ...] | None = None  # None: any
    journals: Path | None = None  # None: in the project

    @property
    def words(self) -> str:
        parts = {
            Mode.OBSERVE: "observe only: runs are not stopped or restarted",
            Mode.RETRY: "retry only: no setting is changed",
            Mode.FULL: "",
        }
        allowed = ", ".join(self.workarounds or ()) or "none"
        listed = f"workarounds: {allowed}" if self.workarounds is not None else ""
        journals = f"journals in {self.journals}" if self.journals else ""
        return "; ".join(filter(None, (parts[self.mode], listed, journals))) or "no restrictions"


def read_policy(environment: Mapping[str, str] = os.environ) -> Policy:
    """Read the file that the variable names, or the one in /etc; raise JobError if it is wrong."""
    named = environment.get(VARIABLE)
    path = Path(named) if named else FILE
    try:
        text = read_regular(path, SIZE_LIMIT).decode()
    except FileNotFoundError:
        if named:
            raise JobError(f"{path}: no such file ({VARIABLE} names it)") from None
        return Policy()
    except OSError as error:
        raise JobError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise JobError(f"{path}: not UTF-8") from None
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise JobError(f"{path}: {error}") from None
    for key, value in table.items():
        if problem := _problem(key, value):
            raise JobError(f"{path}:{_line(text, key)}: {key}: {problem}")
    workarounds = table.get("workarounds")
    return Policy(
        path=str(path),
        mode=Mode(table.get("mode", "full")),
        workarounds=None if workarounds is None else tuple(workarounds),
        journals=Path(table["journals"]) if "journals" in table else None,
    )


def _problem(key: str, value: Any) -> str:  # noqa: ANN401 - whatever TOML has
    if key == "mode":
        modes = [mode.value for mode in Mode]
        return "" if value in modes else f"expected one of {', '.join(modes)}, got {value!r}"
    if key == "workarounds":
        fits = isinstance(value, list) and all(isinstance(each, str) for each in value)
        return "" if fits else f"expected a list of names, got {value!r}"
    if key == "journals":
        fits = isinstance(value, str) and Path(value).is_absolute()
        return "" if fits else f"expected an absolute path, got {value!r}"
    return "not a setting; there are mode, workarounds and journals"


def _line(text: str, key: str) -> int:
    found = re.search(
        rf"^[ \t]*[\"']?{re.escape(key)}\b|^[ \t]*\[+{re.escape(key)}", text, re.MULTILINE
    )
    return text.count("\n", 0, found.start()) + 1 if found else 1
