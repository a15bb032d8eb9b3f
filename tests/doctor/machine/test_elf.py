"""GPU targets of a shared library: four small reads of whatever bytes are there.

Checked once by hand against shared objects that clang 22 built from HIP for nine targets: the
layout that is built here is theirs.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocsteady.doctor.machine.disk_root import DiskRoot
from rocsteady.doctor.machine.torch_build import MAGIC, MOST_SECTIONS, bundle_targets, gpu_targets
from rocsteady.doctor.machine.view import View

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
IDENTITY = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
HOST = "host-x86_64-unknown-linux-gnu-"


def bundle(*targets: str) -> bytes:
    """Return an offload bundle whose entries are empty."""
    entries = [struct.pack("<QQQ", 4096, 0, len(name)) + name.encode() for name in targets]
    return MAGIC + struct.pack("<Q", len(targets)) + b"".join(entries)


def library(  # noqa: PLR0913 - each is one field that a damaged file may have wrong
    content: bytes,
    *,
    name: bytes = b".hip_fatbin",
    identity: bytes = IDENTITY,
    table: int | None = None,
    count: int = 3,
    names_index: int = 2,
    section_size: int = SECTION.size,
    offset: int | None = None,
    size: int | None = None,
) -> bytes:
    """Return a shared library of three sections: none, the device code, the names."""
    names = b"\0" + name + b"\0.shstrtab\0"
    at_names = HEADER.size + len(content)
    at_table = at_names + len(names)
    header = HEADER.pack(
        identity, 3, 62, 1, 0, 0, at_table if table is None else table, 0, HEADER.size, 0, 0,
        section_size, count, names_index,
    )  # fmt: skip
    code = SECTION.pack(
        1, 1, 2, 0, HEADER.size if offset is None else offset,
        len(content) if size is None else size, 0, 0, 4096, 0,
    )  # fmt: skip
    strings = SECTION.pack(len(name) + 2, 3, 0, 0, at_names, len(names), 0, 0, 1, 0)
    return header + content + names + bytes(SECTION.size) + code + strings


def targets(tmp_path: Path, content: bytes) -> tuple[str, ...]:
    (tmp_path / "lib.so").write_bytes(content)
    return gpu_targets(View(DiskRoot(tmp_path)), "/lib.so")


def test_the_targets_of_a_library_without_their_features(tmp_path: Path) -> None:
    content = bundle(
        HOST,
        "hipv4-amdgcn-amd-amdhsa--gfx1100",
        "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+",
        "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-",
        "hip-amdgcn-amd-amdhsa-unknown-gfx906:sramecc+:xnack-",
        "hipv4-amdgcn-amd-amdhsa--gfx9-4-generic",
    )

    assert targets(tmp_path, library(content)) == ("gfx1100", "gfx9-4-generic", "gfx906", "gfx90a")


def test_a_library_of_gigabytes_costs_four_small_reads(tmp_path: Path) -> None:
    far = 5 * 1024**3
    path = tmp_path / "lib.so"
    names = b"\0.hip_fatbin\0.shstrtab\0"
    with path.open("wb") as stream:  # sparse: takes no room
        stream.write(HEADER.pack(IDENTITY, 3, 62, 1, 0, 0, far, 0, 64, 0, 0, SECTION.size, 3, 2))
        stream.seek(far)
        stream.write(bytes(SECTION.size))
        stream.write(SECTION.pack(1, 1, 2, 0, far - 8192, 4 * 1024**3, 0, 0, 4096, 0))
        stream.write(SECTION.pack(13, 3, 0, 0, far - 16384, len(names), 0, 0, 1, 0))
        stream.seek(far - 16384)
        stream.write(names)
        stream.seek(far - 8192)
        stream.write(bundle("hipv4-amdgcn-amd-amdhsa--gfx942"))
    view = View(DiskRoot(tmp_path))

    assert gpu_targets(view, "/lib.so") == ("gfx942",)
    assert len(view.answers) == 4
    assert sum(len(answer) for answer in view.answers.values()) < 20_000


def test_a_compressed_bundle_does_not_tell(tmp_path: Path) -> None:
    assert targets(tmp_path, library(b"CCOB\x03\x00\x01\x00" + bytes(200))) == ()


def test_a_library_for_the_host_alone_has_none(tmp_path: Path) -> None:
    assert targets(tmp_path, library(bundle(HOST))) == ()
    assert targets(tmp_path, library(b"", name=b".text")) == ()


def test_a_section_whose_name_only_begins_so_is_another(tmp_path: Path) -> None:
    content = bundle("hipv4-amdgcn-amd-amdhsa--gfx942")

    assert targets(tmp_path, library(content, name=b".hip_fatbin_other")) == ()


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x7fELF",
        b"#!/bin/sh\n" + bytes(100),
        library(b"x", identity=b"\x7fELF\x01\x01".ljust(16, b"\0")),
        library(b"x", identity=b"\x7fELF\x02\x02".ljust(16, b"\0")),
        library(b"x", count=0),
        library(b"x", count=MOST_SECTIONS + 1),
        library(b"x", count=0xFFFF, names_index=0xFFFE),
        library(b"x", names_index=3),
        library(b"x", section_size=1),
        library(b"x", table=2**64 - 1),
        library(b"x", table=2**63),
        library(b"x", table=10**9),
        library(b"x", offset=2**64 - 1),
        library(b"x", offset=2**62, size=2**64 - 1),
        library(bundle("hipv4-amdgcn-amd-amdhsa--gfx942"))[:-1],
    ],
    ids=[
        "empty", "cut in its header", "script", "32 bit", "big endian", "no sections",
        "too many sections", "most sections", "names out of range", "odd sections",
        "table at the end of numbers", "table at a negative number", "table behind the end",
        "code at the end of numbers", "code behind the end", "cut in its table",
    ],
)  # fmt: skip
def test_a_damaged_library_has_none(tmp_path: Path, damaged: bytes) -> None:
    assert targets(tmp_path, damaged) == ()


def test_no_library_has_none(tmp_path: Path) -> None:
    assert gpu_targets(View(DiskRoot(tmp_path)), "/lib.so") == ()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (bundle(HOST, "hip-amdgcn-amd-amdhsa--gfx906", "hip-amdgcn-amd-amdhsa--gfx90a"), 2),
        (bundle(HOST, "hip-amdgcn-amd-amdhsa--gfx906", "hip-amdgcn-amd-amdhsa--gfx90a")[:-1], 1),
        (MAGIC, 0),
        (MAGIC + struct.pack("<Q", 2**64 - 1), 0),
        (MAGIC + struct.pack("<QQQQ", 1, 0, 0, 2**64 - 1) + b"amdgcn-amd-amdhsa--gfx906", 0),
    ],
    ids=["whole", "cut in a name", "no count", "endless count", "endless name"],
)
def test_a_damaged_table_of_contents_is_read_as_far_as_it_is_whole(
    content: bytes, found: int
) -> None:
    assert bundle_targets(content) == ("gfx906", "gfx90a")[:found]


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2**64 - 1))
def test_no_bundle_is_too_strange(content: bytes, count: int) -> None:
    bundle_targets(content)
    bundle_targets(MAGIC + struct.pack("<Q", count) + content)


class Bytes(DiskRoot):
    """A file that is these bytes and nothing else."""

    def __init__(self, content: bytes) -> None:
        super().__init__(Path("/"))
        self.content = content

    def piece(self, path: str, offset: int, size: int) -> bytes:
        assert path == "/lib.so"
        return self.content[offset : offset + size]


NUMBER = st.integers(0, 400) | st.integers(0, 2**64 - 1)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    head=st.tuples(NUMBER, NUMBER, NUMBER, *[st.integers(0, 2**16 - 1)] * 2),
    rest=st.binary(max_size=400),
)
def test_no_elf_is_too_strange(head: tuple[int, int, int, int, int], rest: bytes) -> None:
    entry, program, table, count, names = head
    header = HEADER.pack(
        IDENTITY, 3, 62, 1, entry, program, table, 0, 64, 0, 0, SECTION.size, count % 8, names % 8
    )

    assert gpu_targets(View(Bytes(header + rest)), "/lib.so") == ()
