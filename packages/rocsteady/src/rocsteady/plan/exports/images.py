"""AMD's images with PyTorch: only tags that AMD's own pages name, with the GPUs they are for.

No image was pulled: there is no GPU and no registry where this was written.
"""

from __future__ import annotations

from rocsteady.model import Value
from rocsteady.plan.exports.export import torch_release

AS_OF = "2026-11-15"
NAMES_THEM = (
    "https://rocm.docs.amd.com/projects/ai-ecosystem/en/latest/frameworks/pytorch/install.html"
)
NAMES_7_2 = "ROCm/rocm-install-on-linux, docs/install/3rd-party/pytorch-install.rst, for ROCm 7.2.4"
WHEELS = "https://nightly.repo.amd.com/rocm/whl-next/"
NAMES_WHEELS = "ROCm/TheRock, RELEASES.md: device extras"
ACCELERATORS = {  # as SkyPilot names them
    "MI100": "gfx908",
    "MI210": "gfx90a",
    "MI250": "gfx90a",
    "MI250X": "gfx90a",
    "MI300": "gfx942",
    "MI300X": "gfx942",
    "MI325X": "gfx942",
    "MI350X": "gfx950",
    "MI355X": "gfx950",
}
_INSTINCT = "gfx908 gfx90a gfx942 gfx950"
_RADEON = "gfx1030 gfx1100 gfx1101 gfx1102 gfx1103 gfx1200 gfx1201"
_RYZEN = "gfx1150 gfx1151 gfx1152 gfx1153"
_ALL = frozenset(f"{_INSTINCT} {_RADEON} {_RYZEN}".split())
# Support in ROCm 7.2 that a page of AMD's or a user of that image names.
_IN_7_2 = frozenset({"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200", "gfx1201"})
_MORE_WHEELS = """
    gfx900 gfx906 gfx1010 gfx1011 gfx1012 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036
"""
WHEELS_FOR = _ALL | frozenset(_MORE_WHEELS.split())


class Image(Value, frozen=True, kw_only=True):
    rocm: str
    torch: str
    gpus: frozenset[str]
    source: str

    @property
    def name(self) -> str:
        return f"rocm/pytorch:rocm{self.rocm}_ubuntu24.04_py3.12_pytorch_release_{self.torch}"


IMAGES = (  # by torch, the oldest first
    Image(rocm="7.2.4", torch="2.7.1", gpus=_IN_7_2, source=NAMES_7_2),
    Image(rocm="7.2.4", torch="2.8.0", gpus=_IN_7_2, source=NAMES_7_2),
    Image(rocm="7.2.4", torch="2.9.1", gpus=_IN_7_2, source=NAMES_7_2),
    Image(rocm="7.14.1", torch="2.10.0", gpus=frozenset(_INSTINCT.split()), source=NAMES_THEM),
    Image(rocm="7.14.1", torch="2.11.0", gpus=_ALL, source=NAMES_THEM),
    Image(rocm="7.14.1", torch="2.12.0", gpus=_ALL, source=NAMES_THEM),
    Image(rocm="10.0", torch="2.13.0", gpus=_ALL, source=NAMES_THEM),
)


def image_for(gfx: str, torch: str = "") -> Image | None:
    """Return the image for a GPU whose torch is the same release, or the next one after it.

    Without a known release, the newest. None: no image is known to have code for this GPU.
    """
    fitting = [image for image in IMAGES if not gfx or gfx in image.gpus]
    if not fitting:
        return None
    wanted = _minor(torch)
    if wanted is None:
        return fitting[-1]
    later = [image for image in fitting if (_minor(image.torch) or wanted) >= wanted]
    return later[0] if later else fitting[-1]


def _minor(torch: str) -> tuple[int, int] | None:
    parts = torch_release(torch).split(".")[:2]
    if len(parts) < 2 or not all(part.isdecimal() for part in parts):  # noqa: PLR2004 - 2.8
        return None
    return int(parts[0]), int(parts[1])
