"""The PyTorch builds that the machines have, and the Python environments that hold them.

The text of ``version.py`` follows PyTorch's own generator (tools/generate_torch_version.py), which
came to write types, then ``xpu``, then, with 2.10, ``rocm``. HIP versions are those that users of
these builds printed. ``git_version`` is zeros: no fact depends on it. Versions of what is installed
beside torch are ours, where the build does not fix them.
"""

from __future__ import annotations

from dataclasses import dataclass

from retyped.recording import Recording

ARCHES_2_5 = "gfx900 gfx906 gfx908 gfx90a gfx942 gfx1030 gfx1100"
ARCHES_2_7 = f"{ARCHES_2_5} gfx1101 gfx1102 gfx1200 gfx1201"
ARCHES_2_9 = f"{ARCHES_2_7} gfx950 gfx1150 gfx1151"

ARCHES_2_10 = (
    "gfx908 gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1101 gfx1102 gfx1150 gfx1151 gfx1200 gfx1201"
)
ARCHES_2_14 = f"{ARCHES_2_10} gfx1103"
SDK_7_14 = "rocm-7.14.0 rocm_sdk_core-7.14.0 rocm_sdk_libraries-7.14.0"
SDK_10 = "rocm-10.0.0 rocm_sdk_core-10.0.0 rocm_sdk_libraries-10.0.0"

TORCH_LIBRARIES = (
    "libc10.so libc10_hip.so libtorch.so libtorch_cpu.so libtorch_hip.so libtorch_python.so "
    "libMIOpen.so libamd_comgr.so libamdhip64.so libhipblas.so libhipblaslt.so libhsa-runtime64.so "
    "librccl.so librocblas.so librocm_smi64.so librocsolver.so libdrm.so libdrm_amdgpu.so"
)
CPU_LIBRARIES = "libc10.so libtorch.so libtorch_cpu.so libtorch_python.so"


@dataclass(frozen=True)
class Wheel:
    """One build of PyTorch."""

    version: str
    hip: str | None
    beside: str  # distributions that came with it: name-version ...
    rocm: str | None = None
    cuda: str | None = None
    fields: str = "cuda hip xpu"  # of version.py
    arches: str = ""  # that its rocBLAS has kernels for


WHEELS = {
    wheel.version: wheel
    for wheel in (
        Wheel(
            "1.13.1+rocm5.2", "5.2.21151-afdc89f8", "torchvision-0.14.1+rocm5.2", fields="cuda hip"
        ),
        Wheel(
            "2.5.1+rocm6.2",
            "6.2.41133-dd7f95766",
            "pytorch_triton_rocm-3.1.0 torchvision-0.20.1+rocm6.2",
            arches=ARCHES_2_5,
        ),
        Wheel("2.6.0+rocm6.2.4", "6.2.41134-65d174c3e", "pytorch_triton_rocm-3.2.0"),
        Wheel(
            "2.7.1+rocm6.3",
            "6.3.42131-fa1d09cbd",
            "pytorch_triton_rocm-3.3.1 torchvision-0.22.1+rocm6.3",
            arches=ARCHES_2_7,
        ),
        Wheel(
            "2.8.0+rocm6.4",
            "6.4.43482-0f2d60242",
            "pytorch_triton_rocm-3.4.0 torchvision-0.23.0+rocm6.4",
            arches=ARCHES_2_7,
        ),
        Wheel(
            "2.9.0+rocm6.4",
            "6.4.43484-123eb5128",
            "pytorch_triton_rocm-3.5.0",
            arches=ARCHES_2_9,
        ),
        Wheel("2.9.1+rocm6.4", "6.4.43484-123eb5128", "pytorch_triton_rocm-3.5.1"),
        Wheel(
            "2.9.1+rocm7.2.0.git7e1940d4",
            "7.2.26015-fc0010cf6a",
            "triton-3.5.1+rocm7.2.0.gita272dfa8",
        ),
        Wheel("2.9.0+cu128", None, "triton-3.5.0 torchvision-0.24.0+cu128", cuda="12.8"),
        Wheel("2.9.0+cpu", None, "torchvision-0.24.0+cpu"),
        Wheel("2.10.0+cpu", None, "torchvision-0.25.0+cpu", fields="cuda hip rocm xpu"),
        Wheel(
            "2.11.0+rocm7.2",
            "7.2.26015-fc0010cf6a",
            "triton_rocm-3.6.0",
            rocm="7.2.0",
            fields="cuda hip rocm xpu",
        ),
        Wheel(
            "2.12.0+rocm7.2",
            "7.2.26015-fc0010cf6a",
            "triton_rocm-3.7.0 torchvision-0.27.0+rocm7.2",
            rocm="7.2.0",
            fields="cuda hip rocm xpu",
            arches=ARCHES_2_9,
        ),
        Wheel("2.10.0+rocm7.1", "7.1.52802-26aae437f6", "triton_rocm-3.6.0", arches=ARCHES_2_10),
        Wheel("2.13.0+rocm7.2", "7.2.53211-e1a6bc5663", "triton_rocm-3.8.0", arches=ARCHES_2_10),
        Wheel("2.14.0+rocm7.14", "7.14.60850", "triton_rocm-3.9.0", arches=ARCHES_2_14),
        Wheel("2.10.0+rocm7.14.0", "7.14.60850", f"triton-3.7.1+rocm7.14.0 {SDK_7_14}"),
        Wheel("2.12.0+rocm7.14.0", "7.14.60850", f"triton-3.7.0+rocm7.14.0 {SDK_7_14}"),
        Wheel("2.12.0+rocm10.0.0", "7.15.26333", f"triton-3.7.0+rocm10.0.0 {SDK_10}"),
        Wheel("2.13.0+rocm10.0.0", "7.15.26333", f"triton-3.8.0+rocm10.0.0 {SDK_10}"),
        Wheel(
            "2.9.1+rocmsdk20251116",
            "7.1.52802-561cc400e1",
            "rocm-0.1.dev0 rocm_sdk_core-0.1.dev0 rocm_sdk_libraries_custom-0.1.dev0",
        ),
    )
}


def add_venv(  # noqa: PLR0913 - each is said by name
    machine: Recording,
    version: str,
    *,
    python: str = "3.10.12",
    folder: str = "/home/user/venv",
    kernels: bool = False,
    more: str = "",  # distributions beside it: name-version ...
) -> None:
    """Add a virtual environment in force that holds this torch."""
    minor = python.rpartition(".")[0]
    machine.environment["VIRTUAL_ENV"] = folder
    machine.environment["PATH"] = f"{folder}/bin:{machine.environment['PATH']}"
    machine.text(
        f"{folder}/pyvenv.cfg",
        "home = /usr/bin",
        "include-system-site-packages = false",
        f"version = {python}",
    )
    machine.link(f"{folder}/bin/python", f"/usr/bin/python{minor}")
    machine.names("/usr/bin", [f"python{minor}"])
    site = f"{folder}/lib/python{minor}/site-packages"
    add_torch(machine, site, version, kernels=kernels, more=more)


def add_conda(machine: Recording, version: str, *, python: str, folder: str) -> None:
    """Add a conda environment in force that holds this torch."""
    minor = python.rpartition(".")[0]
    machine.environment["CONDA_PREFIX"] = folder
    machine.environment["PATH"] = f"{folder}/bin:{machine.environment['PATH']}"
    machine.names(f"{folder}/conda-meta", ["history", f"python-{python}-h955ad1f_0.json"])
    machine.link(f"{folder}/bin/python", f"python{minor}")
    machine.names(f"{folder}/bin", ["pip", "python", f"python{minor}"])
    add_torch(machine, f"{folder}/lib/python{minor}/site-packages", version)


def add_torch(
    machine: Recording, packages: str, version: str, *, kernels: bool = False, more: str = ""
) -> None:
    """Add an installed torch: its version, what lies beside it and, if asked, its kernels."""
    wheel = WHEELS[version]
    beside = [*wheel.beside.split(), *more.split(), f"torch-{version}", "numpy-1.26.4"]
    machine.names(packages, ["numpy", "torch", *(f"{name}.dist-info" for name in beside)])
    machine.text(f"{packages}/torch/version.py", *version_lines(wheel))
    if machine.platform == "win32":
        machine.names(f"{packages}/torch/lib", ["c10_hip.dll", "torch_cpu.dll", "torch_hip.dll"])
    else:
        libraries = TORCH_LIBRARIES if wheel.hip else CPU_LIBRARIES
        machine.names(f"{packages}/torch/lib", libraries.split())
    if kernels:
        names = (f"TensileLibrary_lazy_{arch}.dat" for arch in wheel.arches.split())
        machine.names(f"{packages}/torch/lib/rocblas/library", names)


def version_lines(wheel: Wheel) -> list[str]:
    """Return torch/version.py as the build wrote it."""
    typed = "xpu" in wheel.fields.split()
    optional = ": Optional[str]" if typed else ""
    values = {"cuda": wheel.cuda, "hip": wheel.hip, "rocm": wheel.rocm}
    names = ["__version__", "debug", *wheel.fields.split()]
    names.insert(3, "git_version")
    lines = ["from typing import Optional", ""] if typed else []
    lines += [f"__all__ = {names!r}", f"__version__ = {wheel.version!r}", "debug = False"]
    for name in names[2:]:
        if name == "git_version":
            lines.append(f"git_version = {'0' * 40!r}")
        else:
            lines.append(f"{name}{optional} = {values.get(name)!r}")
    return lines
