"""Which GPUs a shared library holds code for, from its section headers.

HIP puts device code into one ELF section, which starts with a table of contents: a magic word, the
number of entries, and for each the name of its target. Four small reads find it; the library
itself, often gigabytes, is never scanned. A compressed table cannot be read this way.
"""

from __future__ import annotations

import re
import struct

from rocsteady.machine.view import View

FATBIN = b".hip_fatbin"
MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
MOST_SECTIONS = 512
MOST_TARGETS = 128
HEAD = 16 * 1024  # bytes of the section that are looked at

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_ENTRY = struct.Struct("<QQQ")
_TARGET = re.compile(r"amdgcn-amd-amdhsa-.*?-(gfx[0-9a-z-]+)")


def gpu_targets(view: View, path: str) -> tuple[str, ...]:
    """Return the gfx names in the library at ``path``; none if it has none or does not tell."""
    header = view.piece(path, 0, _HEADER.size)
    if len(header) < _HEADER.size or header[:6] != b"\x7fELF\x02\x01":  # 64 bit, little endian
        return ()
    fields = _HEADER.unpack(header)
    table, count, names_index = fields[6], fields[12], fields[13]
    if not 0 < count <= MOST_SECTIONS or names_index >= count or fields[11] != _SECTION.size:
        return ()
    raw = view.piece(path, table, count * _SECTION.size)
    if len(raw) < count * _SECTION.size:
        return ()
    sections = [_SECTION.unpack_from(raw, index * _SECTION.size) for index in range(count)]
    strings = sections[names_index]
    names = view.piece(path, strings[4], min(strings[5], HEAD))
    for section in sections:
        if names[section[0] :].startswith(FATBIN + b"\0"):
            return bundle_targets(view.piece(path, section[4], min(section[5], HEAD)))
    return ()


def bundle_targets(bundle: bytes) -> tuple[str, ...]:
    """Read the table of contents of an offload bundle."""
    if not bundle.startswith(MAGIC) or len(bundle) < len(MAGIC) + 8:
        return ()
    (count,) = struct.unpack_from("<Q", bundle, len(MAGIC))
    found: set[str] = set()
    at = len(MAGIC) + 8
    for _ in range(min(count, MOST_TARGETS)):
        if at + _ENTRY.size > len(bundle):
            break
        length = _ENTRY.unpack_from(bundle, at)[2]
        at += _ENTRY.size
        if at + length > len(bundle):  # a name that is cut off names another GPU
            break
        name = bundle[at : at + length].decode("ascii", "replace")
        at += length
        match = _TARGET.search(name)
        if match:
            found.add(match.group(1).strip("-"))
    return tuple(sorted(found))
