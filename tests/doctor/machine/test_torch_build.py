"""Which torch, for what, with code for which GPUs: from its files alone."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocsteady.doctor.machine.python_env import PythonEnv
from rocsteady.doctor.machine.recording import RecordedPath
from rocsteady.doctor.machine.torch_build import (
    MAGIC,
    MAX_SECTIONS,
    TorchBuild,
    bundle_targets,
    gfx_names,
    gpu_targets,
    in_order,
    made_by,
    packages,
    parse_version_file,
    read_torch,
)
from rocsteady.doctor.machine.view import View
from rocsteady.system.disk_root import DiskRoot
from tests.doctor.machine.recorded_files import Files, view_of

SITE = "/venv/lib/python3.12/site-packages"
PYTHON = PythonEnv(prefix="/venv", chosen="VIRTUAL_ENV", version="3.12.1", site_packages=(SITE,))
GIT = "a8d6afb511a69687bbb2b7e88a3cf67917e1697e"

OF_2_5_1 = f"""__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '2.5.1+rocm6.2'
debug = False
cuda = None
git_version = '{GIT}'
hip = '6.2.41133-dd7f95766'
"""
OF_2_7_1 = f"""from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']
__version__ = '2.7.1+rocm6.3'
debug = False
cuda: Optional[str] = None
git_version = '{GIT}'
hip: Optional[str] = '6.3.42131-fa1d09cbd'
xpu: Optional[str] = None
"""
OF_2_13 = f"""from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.13.0+cpu'
debug = False
cuda: Optional[str] = None
git_version = '{GIT}'
hip: Optional[str] = None
rocm: Optional[str] = None
xpu: Optional[str] = None
"""


def installed(version_file: str, **names: tuple[str, ...]) -> TorchBuild | None:
    """Read a torch; ``names`` are folders below site-packages with what they hold."""
    files: Files = {f"{SITE}/torch/version.py": version_file}
    files |= {f"{SITE}{folder}": RecordedPath(names=listed) for folder, listed in names.items()}
    return read_torch(view_of(files), PYTHON)


def version_file(version: str, *, hip: str | None, rocm: str | None = None) -> str:
    return f"__version__ = {version!r}\nhip: Optional[str] = {hip!r}\nrocm = {rocm!r}\n"


def build(**changes: object) -> TorchBuild:
    facts = {
        "folder": f"{SITE}/torch",
        "build": "rocm",
        "hip": None,
        "rocm": None,
        "cuda": None,
        "arches": (),
        "arches_from": "",
        "bundles_rocm": False,
    }
    return TorchBuild(**{**facts, **changes})  # type: ignore[arg-type]  # a table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OF_2_5_1, build(version="2.5.1+rocm6.2", hip="6.2.41133-dd7f95766", rocm="6.2")),
        (OF_2_7_1, build(version="2.7.1+rocm6.3", hip="6.3.42131-fa1d09cbd", rocm="6.3")),
        (OF_2_13, build(version="2.13.0+cpu", build="cpu")),
        (
            OF_2_7_1.replace("None\ngit", "'12.6'\ngit").replace("'6.3.42131-fa1d09cbd'", "None"),
            build(version="2.7.1+rocm6.3", build="cuda", cuda="12.6", rocm="6.3"),
        ),
    ],
    ids=["2.5.1", "2.7.1", "2.13", "cuda"],
)
def test_the_file_that_each_release_writes(text: str, expected: TorchBuild) -> None:
    assert installed(text) == expected


@pytest.mark.parametrize(
    ("version", "rocm", "hip", "release"),
    [
        ("2.9.1+rocm7.2.0", None, "7.2.53211-x", "7.2.0"),
        ("2.9.0+rocmsdk20250901", "7.0.0", "7.0.51830", "7.0.0"),
        ("2.9.0+rocmsdk20250901", None, "7.0.51830", "7.0"),
        ("2.8.0a0+gitba56102", None, "6.4.43482-0f2d60242", "6.4"),
        ("2.8.0", None, "garbage", None),
    ],
)
def test_the_rocm_release_is_told_by_the_tag_then_by_rocm_then_by_hip(
    version: str, rocm: str | None, hip: str, release: str | None
) -> None:
    found = installed(version_file(version, hip=hip, rocm=rocm))

    assert found is not None
    assert (found.build, found.version, found.rocm) == ("rocm", version, release)


def test_no_torch_is_an_answer() -> None:
    assert read_torch(view_of({}), PYTHON) is None


@pytest.mark.parametrize(
    ("version", "whose"),
    [
        ("2.12.0+rocm7.2", "pytorch"),
        ("2.6.0+rocm6.2.4", "pytorch"),
        ("2.9.1+rocm7.2.0.git7e1940d4", "amd"),
        ("2.11.0+rocm7.14.0", "amd"),
        ("2.9.1+rocmsdk20251116", "amd"),
        ("2.12.0a0+git1234567", "other"),
    ],
)
def test_whose_build_it_is_stands_in_the_tag(version: str, whose: str) -> None:
    found = installed(OF_2_5_1.replace("2.5.1+rocm6.2", version))

    assert found is not None
    assert made_by(found) == whose


def test_code_is_told_by_the_names_of_kernel_files() -> None:
    found = installed(
        OF_2_5_1,
        **{
            "/torch/lib/rocblas/library": (
                "Kernels.so-000-gfx90a-xnack-.hsaco",
                "Kernels.so-000-gfx90a-xnack+.hsaco",
                "TensileLibrary_Type_HH_Contraction_gfx1030.co",
                "TensileLibrary_gfx942.dat",
                "TensileManifest.txt",
            ),
            "/torch/lib/hipblaslt/library": ("extop_gfx1200.co",),
        },
    )

    assert found is not None
    assert (found.arches, found.arches_from) == (("gfx90a", "gfx942", "gfx1030"), "file names")


def test_other_kernels_help_where_rocblas_lies_elsewhere() -> None:
    found = installed(
        OF_2_5_1, **{"/torch/lib/aotriton.images": ("amd-gfx11xx", "amd-gfx90a", "amd-gfx942")}
    )

    assert found is not None
    assert found.arches == ("gfx90a", "gfx942")


def test_code_is_told_by_the_packages_of_its_devices() -> None:
    found = installed(
        version_file("2.10.0+rocm7.12.0", hip="7.12.0"),
        **{
            "": (
                "amd_torch_device_gfx1100-2.10.0.dist-info",
                "amd_torch_device_gfx120x_all-2.10.0.dist-info",
                "rocm_sdk_device_gfx942-7.12.0.dist-info",
                "rocm_sdk_core-7.12.0.dist-info",
                "torch-2.10.0+rocm7.12.0.dist-info",
            )
        },
    )

    assert found is not None
    assert (found.arches, found.arches_from) == (("gfx942", "gfx1100"), "file names")
    assert found.bundles_rocm


def test_files_that_do_not_tell_leave_it_open() -> None:
    found = installed(OF_2_5_1, **{"/torch/lib": ("libamdhip64.so", "libtorch_hip.so")})

    assert found is not None
    assert (found.arches, found.arches_from, found.bundles_rocm) == ((), "", True)


def test_a_build_for_the_cpu_is_not_asked_for_gpu_code() -> None:
    found = installed(OF_2_13, **{"/torch/lib/rocblas/library": ("TensileLibrary_gfx942.dat",)})

    assert found is not None
    assert found.arches == ()


def test_packages_that_matter_by_name_and_version() -> None:
    names = (
        "Torch-2.5.1.dist-info", "torchvision-0.20.1+rocm6.2.dist-info", "numpy-2.0.dist-info",
        "torch", "torch-2.5.1.egg-info", "pytorch_triton_rocm-3.1.0.dist-info",
        "torchmetrics-1.0.dist-info", "nvidia_cuda_runtime_cu12-12.4.127.dist-info",
    )  # fmt: skip

    assert packages(view_of({SITE: RecordedPath(names=names)}), PYTHON) == (
        ("torch", "2.5.1"),
        ("nvidia_cuda_runtime_cu12", "12.4.127"),
        ("pytorch_triton_rocm", "3.1.0"),
        ("torchvision", "0.20.1+rocm6.2"),
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("TensileLibrary_gfx90a.dat", {"gfx90a"}),
        ("kernels_gfx9-4-generic.hsaco", {"gfx9-4-generic"}),
        ("kernels_gfx11-generic.hsaco", {"gfx11-generic"}),
        ("amd-gfx11xx", set()),
        ("rocm_sdk_libraries_gfx110x_all", set()),
        ("gfx", set()),
    ],
)
def test_gfx_names_in_names_of_files(name: str, found: set[str]) -> None:
    assert gfx_names([name]) == found


def test_gfx_names_are_sorted_as_people_do() -> None:
    assert in_order(["gfx1100", "gfx90a", "gfx1030", "gfx906"]) == (
        "gfx906",
        "gfx90a",
        "gfx1030",
        "gfx1100",
    )


def test_assignments_of_anything_else_are_passed_over() -> None:
    text = "a = 'x'\nb = \"y\"\nc: Optional[str] = None\nd = 3\n  e = 'z'\nf == 'g'\nh = 'cut\n"

    assert parse_version_file(text) == {"a": "x", "b": "y", "c": None}


@pytest.mark.parametrize("text", ["x:" + " " * 65_000, "x" + "\n" * 65_000, "x = " * 16_000])
def test_garbage_is_read_in_no_time(text: str) -> None:
    began = time.process_time()

    parse_version_file(text)

    assert time.process_time() - began < 0.5


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.text() | st.from_regex(r"""(\w+(: ?\w*)? ?= ?['"]?[\w.+]*['"]?\n)*""", fullmatch=True))
def test_no_version_file_is_too_strange(text: str) -> None:
    for value in parse_version_file(text).values():
        assert value is None or "\n" not in value
    assert installed(text) is not None


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
        library(b"x", count=MAX_SECTIONS + 1),
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


def test_code_is_told_by_the_library_itself(tmp_path: Path) -> None:
    names = ("gfx1100", "gfx90a")
    folder = tmp_path / SITE.lstrip("/") / "torch"
    kernels = folder / "lib/rocblas/library"
    kernels.mkdir(parents=True)
    for name in ("TensileLibrary_gfx942.dat", "TensileLibrary_lazy_gfx1100.dat"):
        (kernels / name).touch()
    (folder / "version.py").write_text(OF_2_5_1)
    content = bundle(*(f"hipv4-amdgcn-amd-amdhsa--{name}" for name in names))
    (folder / "lib/libtorch_hip.so").write_bytes(library(content))

    found = read_torch(View(DiskRoot(tmp_path)), PYTHON)

    assert found is not None  # rocBLAS has nothing for the gfx90a that torch itself has code for
    assert (found.arches, found.arches_from) == (("gfx1100",), "library")
