"""Event files as TensorBoard reads them: records with checksums, each one protocol buffer.

Only what a run needs is written: numbers, and texts. The format has been the same since 2015.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import cache

POLYNOMIAL = 0x82F63B78  # of CRC-32C
MASK = 0xA282EAD8  # as TFRecord has it
LARGEST = 3.4028234e38  # of 32 bits
STRING = 7  # the data type of a tensor of texts
VARINT, FIXED_8, BYTES, FIXED_4 = 0, 1, 2, 5  # how a protobuf field is written


def file_start(at: float) -> bytes:
    """Return what an event file begins with."""
    return _record(_double(1, at) + _bytes(3, b"brain.Event:2"))


def numbers_record(values: Iterable[tuple[str, float]], step: int, at: float) -> bytes:
    """Return numbers at a step, by name."""
    summary = b"".join(
        _bytes(1, _bytes(1, _text(name)) + _key(2, FIXED_4) + _single(value))
        for name, value in values
    )
    return _record(_event(summary, step, at))


def text_record(name: str, text: str, step: int, at: float) -> bytes:
    """Return a text at a step, for the plug-in that shows texts."""
    plugin = _bytes(9, _bytes(1, _bytes(1, b"text")))
    shape = _bytes(2, _bytes(2, _key(1, VARINT) + _varint(1)))
    tensor = _key(1, VARINT) + _varint(STRING) + shape + _bytes(8, _text(text))
    value = _bytes(1, _text(name)) + plugin + _bytes(8, tensor)
    return _record(_event(_bytes(1, value), step, at))


def _event(summary: bytes, step: int, at: float) -> bytes:
    return _double(1, at) + _key(2, VARINT) + _varint(max(0, step)) + _bytes(5, summary)


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + _checksum(length) + content + _checksum(content)


def _checksum(content: bytes) -> bytes:
    crc, table = 0xFFFFFFFF, _table()
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + MASK) & 0xFFFFFFFF)


@cache
def _table() -> tuple[int, ...]:
    def entries() -> Iterator[int]:
        for index in range(256):
            crc = index
            for _ in range(8):
                crc = (crc >> 1) ^ (POLYNOMIAL if crc & 1 else 0)
            yield crc

    return tuple(entries())


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, BYTES) + _varint(len(content)) + content


def _double(field: int, value: float) -> bytes:
    return _key(field, FIXED_8) + struct.pack("<d", value)


def _single(value: float) -> bytes:
    """Return a number of 32 bits; one that is too large for it becomes the largest."""
    return struct.pack("<f", min(max(value, -LARGEST), LARGEST))


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
