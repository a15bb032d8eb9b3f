"""What is known of stacks: which functions wait for a device, which threads only serve.

The same stack means different things to different rooms; here it is only recognised.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rocsteady.errors import KnowledgeError
from rocsteady.vocabulary import Value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).parent / "data" / "waits.toml"


class Sign(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One name by which a wait or a thread is recognised; exactly one of the three is given."""

    sources: tuple[str, ...]
    native: str = ""  # a function
    python: str = ""  # the end of a file's path, or a folder, which ends with /
    function: str = ""  # in that file; without it, any
    thread: str = ""  # the name that the kernel shows
    note: str = ""


class Signs(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=lambda s: s[:-1]):
    """The whole file."""

    devices: tuple[Sign, ...]
    helpers: tuple[Sign, ...]
    collectives: tuple[Sign, ...]
    persons: tuple[Sign, ...]


class Waits:
    """Recognises stacks. Frames are "function (file:line)", innermost first."""

    def __init__(self, signs: Signs) -> None:
        self.signs = signs
        self._devices = _Names(signs.devices)
        self._helpers = _Names(signs.helpers)
        self._collectives = _Names(signs.collectives)
        self._persons = _Names(signs.persons)

    def device(self, native: Sequence[str]) -> int | None:
        """Return the place of the innermost function that waits for a device, if there is one."""
        return next((i for i, frame in enumerate(native) if self._devices.in_native(frame)), None)

    def helper(self, name: str, frames: Sequence[str], native: Sequence[str]) -> bool:
        """Tell whether a thread only serves: it never decides whether the training goes on."""
        return name in self._helpers.threads or self._helpers.found(frames, native)

    def collective(self, frames: Sequence[str], native: Sequence[str]) -> bool:
        """Tell whether a thread waits for the other ranks."""
        return self._collectives.found(frames, native)

    def person(self, frames: Sequence[str]) -> bool:
        """Tell whether a thread waits for somebody at a debugger."""
        return self._persons.found(frames, ())


class _Names:
    """The names of one kind, ready to be searched for."""

    def __init__(self, signs: Iterable[Sign]) -> None:
        self.threads = frozenset(sign.thread for sign in signs if sign.thread)
        native = [re.escape(sign.native) for sign in signs if sign.native]
        self._native = re.compile(rf"(?<!\w)(?:{'|'.join(native)})(?!\w)") if native else None
        files = [_file_pattern(sign) for sign in signs if sign.python]
        self._python = re.compile("|".join(files)) if files else None

    def in_native(self, frame: str) -> bool:
        return self._native is not None and self._native.search(frame) is not None

    def found(self, frames: Sequence[str], native: Sequence[str]) -> bool:
        python = self._python
        return any(self.in_native(frame) for frame in native) or (
            python is not None and any(python.search(_forward(frame)) for frame in frames)
        )


def load_waits(path: Path = FILE) -> Waits:
    """Read the file, and refuse what is wrong with it by entry and field."""
    try:
        signs = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Signs)
    except OSError as error:
        raise KnowledgeError(f"{path.name}: {error.strerror}") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise KnowledgeError(f"{path.name}: {error}") from None
    for sign in (*signs.devices, *signs.helpers, *signs.collectives, *signs.persons):
        names = [name for name in (sign.native, sign.python, sign.thread) if name]
        if len(names) != 1:
            raise KnowledgeError(f"{path.name}: {names}: native, python or thread, one of them")
        if not sign.sources:
            raise KnowledgeError(f"{path.name}: {names[0]}: sources: must not be empty")
    return Waits(signs)


def _file_pattern(sign: Sign) -> str:
    """Write the pattern of a frame, "function (folders/file:line)"."""
    file = re.escape(sign.python) + ("" if sign.python.endswith("/") else r"[:)]")
    return (
        rf"\b{re.escape(sign.function)} \((?:[^()]*/)?{file}" if sign.function else rf"[(/]{file}"
    )


def _forward(frame: str) -> str:
    return frame.replace("\\", "/")
