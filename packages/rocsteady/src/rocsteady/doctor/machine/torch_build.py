"""Which torch is installed, for what, and with code for which GPUs: from its files alone.

Importing torch takes two seconds, touches the GPU and can hang; nothing here imports it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from rocsteady.doctor.machine.python_env import PythonEnv, torch_folder
from rocsteady.doctor.machine.view import View
from rocsteady.model import Value

# Which GPUs a shared library holds code for, from its section headers. HIP puts device code
# into one ELF section, which starts with a table of contents: a magic word, the number of
# entries, and for each the name of its target. Four small reads find it; the library itself,
# often gigabytes, is never scanned. A compressed table cannot be read this way.
FATBIN = b".hip_fatbin"
MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
MAX_SECTIONS = 512
MAX_TARGETS = 128
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
    if not 0 < count <= MAX_SECTIONS or names_index >= count or fields[11] != _SECTION.size:
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
    for _ in range(min(count, MAX_TARGETS)):
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


DEVICE_LIBRARY = "libtorch_hip.so"
RUNTIME_LIBRARIES = ("libamdhip64", "libhsa-runtime64", "amdhip64")
KERNEL_FOLDERS = ("rocblas/library", "hipblaslt/library", "aotriton.images")

# Packages whose versions matter to a ROCm build or a rule, as their .dist-info folders spell them.
PACKAGES = re.compile(
    r"^(torch|torchvision|torchaudio|triton|pytorch_triton_rocm|triton_rocm|flash_attn|xformers"
    r"|bitsandbytes|amdsmi|rocm|rocm_sdk\w*|amd_torch_device_\w+|rocm_sdk_device_\w+"
    r"|jax_rocm\w*|tensorflow_rocm|torch_directml|lightning|pytorch_lightning"
    r"|nvidia_cuda_runtime_cu\d+)-(.+)\.dist-info$",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    r"^(\w+)[ \t]*(?::[^=\n]*)?=[ \t]*(?:'([^'\n]*)'|\"([^\"\n]*)\"|(None))", re.MULTILINE
)
_GFX = re.compile(r"gfx(?:[0-9]+(?:-[0-9]+)?-generic|[0-9a-f]+(?![0-9A-Za-z]))")
_FAMILY_IMAGE = re.compile(r"gfx\d+xx")  # AOTriton's name for a whole family


class TorchBuild(Value, frozen=True, kw_only=True):
    folder: str
    version: str
    build: str  # "rocm", "cuda" or "cpu"
    hip: str | None
    rocm: str | None  # the ROCm release it was built for: "6.2"
    cuda: str | None
    arches: tuple[str, ...]  # gfx names with code; empty where its files do not tell
    arches_from: str  # "library" or "file names"; "" where its files do not tell
    bundles_rocm: bool  # brings ROCm's own libraries along
    brings_libnuma: bool = False  # under the plain name that rocSHMEM asks for


def read_torch(view: View, python: PythonEnv) -> TorchBuild | None:
    folder = torch_folder(view, python)
    if folder is None:
        return None
    facts = parse_version_file(view.text(f"{folder}/version.py") or "")
    version = facts.get("__version__") or ""
    hip, cuda = facts.get("hip"), facts.get("cuda")
    arches, arches_from = _arches(view, folder, python) if hip else ((), "")
    installed, libraries = packages(view, python), view.names(f"{folder}/lib")
    bundled = any(name.startswith(RUNTIME_LIBRARIES) for name in libraries)
    return TorchBuild(
        folder=folder,
        version=version,
        build="rocm" if hip else "cuda" if cuda else "cpu",
        hip=hip,
        rocm=_rocm_release(version, facts.get("rocm"), hip),
        cuda=cuda,
        arches=arches,
        arches_from=arches_from,
        bundles_rocm=bundled or any(name == "rocm_sdk_core" for name, _ in installed),
        brings_libnuma="libnuma.so" in libraries,
    )


def made_by(torch: TorchBuild) -> str:
    """Return whose ROCm build it is: "pytorch", "amd" or "other".

    The wheels of pytorch.org have the release alone in their tag, +rocm7.2; AMD's have all of its
    numbers and often more, +rocm7.14.0 or +rocm7.2.0.git7e1940d4. 2.6 for ROCm 6.2.4 is an
    exception of pytorch.org.
    """
    tag = torch.version.partition("+")[2]
    if re.fullmatch(r"rocm\d+\.\d+", tag) or tag == "rocm6.2.4":
        return "pytorch"
    return "amd" if re.match(r"rocm(?:\d+\.\d+\.\d|sdk)", tag) else "other"


def packages(view: View, python: PythonEnv) -> tuple[tuple[str, str], ...]:
    """Return name and version of the packages that matter, from the names of their folders."""
    matches = (PACKAGES.match(name) for site in python.site_packages for name in view.names(site))
    return tuple((match.group(1).lower(), match.group(2)) for match in matches if match)


def parse_version_file(text: str) -> dict[str, str | None]:
    return {
        name: None if none else single or double
        for name, single, double, none in _ASSIGNED.findall(text)
    }


def gfx_names(names: Iterable[str]) -> set[str]:
    return {
        found for name in names if not _FAMILY_IMAGE.search(name) for found in _GFX.findall(name)
    }


def in_order(gfx: Iterable[str]) -> tuple[str, ...]:
    """Sort gfx names as people do: gfx90a before gfx1030."""
    return tuple(sorted(gfx, key=lambda name: (len(name), name)))


def _arches(view: View, folder: str, python: PythonEnv) -> tuple[tuple[str, ...], str]:
    lib = f"{folder}/lib"
    from_library = gpu_targets(view, f"{lib}/{DEVICE_LIBRARY}")
    if from_library:
        # The first matrix product ends a process whose GPU rocBLAS has no files for.
        with_products = gfx_names(view.names(f"{lib}/rocblas/library"))
        return in_order(set(from_library) & (with_products or set(from_library))), "library"
    # rocBLAS carries one set of files for each GPU that the wheel was built for. The other
    # libraries support fewer, so they only help where rocBLAS lies elsewhere.
    for kernels in KERNEL_FOLDERS:
        if found := gfx_names(view.names(f"{lib}/{kernels}")):
            return in_order(found), "file names"
    device_packages = (name for name, _ in packages(view, python) if "device_gfx" in name)
    found = gfx_names(device_packages)
    return in_order(found), "file names" if found else ""


def _rocm_release(version: str, rocm: str | None, hip: str | None) -> str | None:
    """Return the ROCm release: a wheel's tag says it best, HIP's own version counts differently."""
    for text, pattern in (
        (version, r"\+rocm(\d+(?:\.\d+)+)"),
        (rocm, r"(\d+(?:\.\d+)+)"),
        (hip, r"(\d+\.\d+)"),
    ):
        match = re.search(pattern, text or "")
        if match:
            return match.group(1)
    return None
