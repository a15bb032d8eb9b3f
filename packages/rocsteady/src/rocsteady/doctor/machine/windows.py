"""GPUs of native Windows, from the registry. Unconfirmed: replayed here, never run on Windows.

Windows has no KFD: the display driver says which card it is, and nothing says which instruction
set. ``hipinfo`` of the HIP SDK does, if it is there: it is asked in a child that may hang or crash,
and what it printed before is believed. Else it follows from the PCI device, which the knowledge
base maps.
"""

from __future__ import annotations

import re

from msgspec import structs

from rocsteady.doctor.machine.gpus import AMD, Gpu, GpuSurvey
from rocsteady.doctor.machine.system import Driver
from rocsteady.doctor.machine.view import View
from rocsteady.system.root import HIPINFO

ADAPTERS = "/HKLM/SYSTEM/CurrentControlSet/Control/Class/{4d36e968-e325-11ce-bfc1-08002be10318}"
_ARCH = re.compile(r"^gcnArchName:\s+(gfx[0-9a-f]{3,6})\b", re.MULTILINE)
_HARDWARE = re.compile(
    r"VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})(?:.*?&REV_([0-9A-F]{2}))?", re.IGNORECASE
)


def survey_adapters(view: View) -> tuple[GpuSurvey, Driver]:
    """Return the AMD display adapters and the driver of the first."""
    found = [
        (_gpu(view, f"{ADAPTERS}/{name}"), view.text(f"{ADAPTERS}/{name}/DriverVersion"))
        for name in view.names(ADAPTERS)
        if name.isdecimal()
    ]
    gpus = [(gpu, version) for gpu, version in found if gpu is not None]
    driver = Driver(
        loaded=bool(gpus),
        version=gpus[0][1] if gpus else None,
        kind="Windows" if gpus else "",
    )
    named = tuple(gpu for gpu, _ in gpus)
    arches = _hipinfo(view) if named else []
    if len(arches) == len(named):  # else which is whose cannot be told
        named = tuple(structs.replace(gpu, gfx=gfx) for gpu, gfx in zip(named, arches, strict=True))
    return GpuSurvey(gpus=named), driver


def _hipinfo(view: View) -> list[str]:
    """Return the instruction sets that the HIP SDK's own tool names, in its order."""
    sdk = (view.environment or {}).get("HIP_PATH", "").replace("\\", "/").rstrip("/")
    program = f"{sdk}/bin/{HIPINFO}"
    if not sdk or not view.exists(program):
        return []
    return _ARCH.findall(view.portrait(program) or "")


def _gpu(view: View, adapter: str) -> Gpu | None:
    match = _HARDWARE.search(view.text(f"{adapter}/MatchingDeviceId") or "")
    if match is None or int(match.group(1), 16) != AMD:
        return None
    return Gpu(
        node=None,
        gfx=None,
        name=(view.text(f"{adapter}/DriverDesc") or "").removeprefix("AMD "),
        pci_address="",
        device=int(match.group(2), 16),
        revision=int(match.group(3), 16) if match.group(3) else None,
        serial="",
        partition=None,
        integrated=False,
        compute_units=None,
        vram_bytes=view.number(f"{adapter}/HardwareInformation.qwMemorySize"),
        gtt_bytes=None,
        render_minor=None,
        link=None,
        iommu=None,
        asleep=False,
        firmware={},
    )
