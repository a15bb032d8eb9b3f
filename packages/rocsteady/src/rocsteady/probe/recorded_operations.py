"""What the recorder left: the operation in flight, where numbers went wrong, what was compared."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import read_regular

from rocsteady.hangs.heartbeat_pages import numbered
from rocsteady.model import Value
from rocsteady.typed_values import decode

ORIGIN_LIMIT, NUMBERS_LIMIT = 256 * 1024, 4 * 1024 * 1024  # bytes
_HEAD = struct.Struct("=4Q")


class Operation(Value, frozen=True, kw_only=True):
    """One call of an operator, as it was written down before it was made."""

    name: str  # "aten::mm"
    overload: str = ""
    args: list[object] = msgspec.field(default_factory=list)
    kwargs: dict[str, object] = msgspec.field(default_factory=dict)
    line: str = ""  # of the user's own code: "model.py:88 in Block.forward"
    module: str = ""  # "layers.0.linear1 (Linear)"
    phase: str = ""  # compute, backward, optimizer
    step: int = 0  # that was being made
    number: int = 0  # of the call, counted in its process
    key: str = ""  # by which the same call with the same shapes is known again

    @property
    def tensors(self) -> list[str]:
        """Its tensors, as a person writes them: "float32 [16, 8]"."""
        return [f"{it['dtype']} {it['shape']}" for it in _described([self.args, self.kwargs])]

    @property
    def device(self) -> str:
        """The device that it runs on; "cpu" if no tensor is elsewhere."""
        found = [str(it.get("device", "cpu")) for it in _described([self.args, self.kwargs])]
        return next((device for device in found if device != "cpu"), "cpu")

    @property
    def where(self) -> str:
        """The user's line and the module, or as much of it as is known."""
        of = "backward of " if self.phase == "backward" else ""
        return of + ", ".join(part for part in (self.line, self.module) if part)


class InFlight(Value, frozen=True, kw_only=True):
    operation: Operation
    seconds: float  # since it was begun


AT_END = ("read", "raised")  # kinds that accuse only once the script has ended


class Origin(Value, frozen=True, kw_only=True):
    """Where numbers went wrong, or an exception came from."""

    version: int = 0
    kind: str  # nan, infinite, outside, wrong; and only if the script ends of it: read, raised
    operation: Operation | None = None
    how: str = ""
    type: str = ""  # of an exception
    message: str = ""


class Deviation(Value, frozen=True, kw_only=True):
    how: str
    operation: Operation


class ComparedNumbers(Value, frozen=True, kw_only=True):
    """What was compared with float64 on the processor."""

    version: int = 0
    compared: dict[str, int] = msgspec.field(default_factory=dict)  # calls, by operator
    not_compared: dict[str, str] = msgspec.field(default_factory=dict)  # and why
    deviations: tuple[Deviation, ...] = ()


T = TypeVar("T", Origin, ComparedNumbers)


def _described(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        yield value
    elif isinstance(value, dict):
        yield from _described(list(value.values()))
    elif isinstance(value, list):
        for each in value:
            yield from _described(each)


def read_in_flight(pages: Path) -> tuple[InFlight, ...]:
    """Return the operations that were begun and have not come back, the latest first."""
    found = []
    for _, path in numbered(pages, wire.OPERATION_SUFFIX):
        try:
            content = read_regular(path, wire.SLOTS * wire.SLOT, follow=False)
        except OSError:
            continue
        for start in range(0, len(content) - wire.SLOT + 1, wire.SLOT):
            state, _, began, length = _HEAD.unpack_from(content, start)
            if state != wire.IN_FLIGHT:
                continue
            text = content[start + wire.O_TEXT : start + wire.O_TEXT + length]
            try:
                operation = decode(text, type=Operation)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # being written
            seconds = (time.monotonic_ns() - began) * 1e-9
            found.append(InFlight(operation=operation, seconds=seconds))
    return tuple(sorted(found, key=lambda each: each.seconds))


def read_origin(pages: Path) -> Origin | None:
    """Return where it went wrong, in the process that told so first."""
    found = list(_left(pages, wire.ORIGIN_SUFFIX, Origin, ORIGIN_LIMIT))
    return min(found, key=lambda each: each[0])[1] if found else None


def read_compared(pages: Path) -> ComparedNumbers | None:
    found = list(_left(pages, wire.NUMBERS_SUFFIX, ComparedNumbers, NUMBERS_LIMIT))
    return max(found, key=lambda each: sum(each[1].compared.values()))[1] if found else None


def _left(pages: Path, suffix: str, kind: type[T], limit: int) -> Iterator[tuple[float, T]]:
    for _, path in numbered(pages, suffix):
        try:
            content = read_regular(path, limit, follow=False)
            found = decode(content, type=kind)
            if found.version == wire.RECORD_VERSION:
                yield path.lstat().st_mtime, found
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
