"""Every target that an option of the plan can be exported to. Not in this table, not written.

What a file says is in its template (``templates/``); here are the values that it needs computed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from rocsteady.doctor.knowledge.hardware import WheelRelease
from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.errors import RocsteadyError
from rocsteady.plan.exports.export import (
    Export,
    HostCount,
    Image,
    folders,
    image_for,
    job_command,
    known_places,
    run_command,
    several_hosts,
    slug,
    torch_release,
    torchrun_hosts,
)
from rocsteady.plan.exports.templates import render
from rocsteady.plan.exports.wheels import FOLDER
from rocsteady.versions import version_fits

Files = dict[str, str]  # name of the file, in the project's folder: what is in it
TURN_SECONDS = 86_400  # seconds: one day is within the limit of most Slurm partitions
SHORTEST_ALLOCATION = 600  # seconds
STORAGE = 50  # GiB of a volume for a project and its checkpoints; our guess
ON_PYTORCH_ORG = r"\d+\.\d+|6\.2\.4"  # versions of ROCm there; AMD's own wheels name three parts


def container(export: Export) -> Files:
    """Return an image for this job, and the script that runs it with the GPUs of the machine."""
    image, known = image_for(export.gfx, export.torch), known_places()
    if image is None and export.gfx not in known.wheels_for:
        raise RocsteadyError(f"AMD names neither an image nor a wheel with code for {export.gfx}")
    values = {"image": image, "wheels": known.wheels, "wheels_source": known.wheels_source}
    return {
        "rocsteady.Dockerfile": _rendered("Dockerfile.j2", export, **values),
        "run-in-container.sh": _rendered("run-in-container.sh.j2", export),
    }


def slurm(export: Export) -> Files:
    """Return a batch file: it hands the job back to the queue if that may go on by itself."""
    wheel = _wheel(export)
    rocm = export.rocm if re.fullmatch(ON_PYTORCH_ORG, export.rocm) else wheel.rocm
    release = torch_release(export.torch)
    if rocm != export.rocm and not (release and version_fits(release, wheel.torch)):
        release = wheel.latest
    text = _rendered(
        "slurm.sbatch.j2", export, rocm=rocm, torch=f"torch=={release}", time=_slurm_time(export)
    )
    return {f"{slug(export.name)}.sbatch": text}


def kubernetes(export: Export) -> Files:
    """Return a Job for nodes with AMD's device plugin; for several hosts, a JobSet."""
    image = image_for(export.gfx, export.torch)
    if image is None:
        raise RocsteadyError(f"no AMD image is known to have code for {export.gfx}")
    kind = "jobset" if several_hosts(export.command) else "job"
    text = _rendered("kubernetes.yaml.j2", export, image=image)
    claim = _rendered("kubernetes-claim.yaml.j2", export, image=image, storage=STORAGE)
    name = slug(export.name)
    return {f"{name}-{kind}.yaml": text, f"{name}-claim.yaml": claim}


def skypilot(export: Export) -> Files:
    """Return a task: the project goes up, the job is done, the model comes down."""
    if not export.accelerator:
        raise RocsteadyError("a SkyPilot task needs a GPU to rent: choose a cloud option")
    if several_hosts(export.command):
        raise RocsteadyError("a SkyPilot task rents one machine: export to slurm or kubernetes")
    patterns = dict.fromkeys((*export.checkpoints, *export.outputs))
    files = [pattern for pattern in patterns if "/" not in pattern]
    text = _rendered(
        "skypilot.yaml.j2",
        export,
        image=_rented_image(export),
        downloads=_downloads(slug(export.name), (*patterns,), files),
    )
    return {f"{slug(export.name)}.yaml": text}


def wsl2(export: Export) -> Files:
    """Return a guide for this GPU, or one that says that AMD does not list it."""
    gpu = " ".join(export.gpu.split()) or "this GPU"  # a recording's may have lines of its own
    products = known_places().wsl.get(export.gfx, ())
    text = _rendered(
        "wsl2-guide.md.j2",
        export,
        gpu=gpu,
        products=products,
        is_named=any(product.lower() in gpu.lower() for product in products),
        reported=known_places().wsl_reports.get(export.gfx, ""),
    )
    return {"wsl2-guide.md": text}


TARGETS: Mapping[str, Callable[[Export], Files]] = {
    target.__name__: target for target in (wsl2, skypilot, container, slurm, kubernetes)
}


def _rendered(template: str, export: Export, **values: object) -> str:
    release = torch_release(export.torch)
    hosts = torchrun_hosts(export.command)
    return render(
        template,
        **{
            "export": export,
            "name": slug(export.name),
            "torch": f"torch=={release}" if release else "torch",
            "torchrun": hosts is not None,
            "hosts": hosts or HostCount(1, 1),
            "run": run_command(export),
            "job": job_command(export),
            "as_of": known_places().as_of,
            "wheels_folder": FOLDER,
            **values,
        },
    )


def _wheel(export: Export) -> WheelRelease:
    """Return the release of pytorch.org with code for the GPU: of the same torch, or the newest."""
    known = [it for it in load_knowledge().wheels if not export.gfx or export.gfx in it.arches]
    if not known:
        other = "write an image with AMD's wheel: rocsteady plan --export container"
        raise RocsteadyError(f"pytorch.org has no wheel with code for {export.gfx}; {other}")
    release = torch_release(export.torch)
    same = [it for it in known if release and version_fits(release, it.torch)]
    return (same or known)[-1]


def _slurm_time(export: Export) -> str:
    """Return for how long to ask: a turn, where several make up the whole; else until it is due."""
    turns = export.due is None or (export.resumes and export.due > TURN_SECONDS)
    seconds = TURN_SECONDS if turns or export.due is None else max(export.due, SHORTEST_ALLOCATION)
    days, minutes = divmod(math.floor(seconds / 60), 1440)
    return f"{days}-{minutes // 60:02}:{minutes % 60:02}:00"


def _rented_image(export: Export) -> Image | None:
    """Return the image for a card of AMD's; one of NVIDIA's gets torch by pip."""
    gfx = known_places().accelerators.get(export.accelerator)
    if gfx is None and export.accelerator.startswith("MI"):
        raise RocsteadyError(f"no AMD image is known for {export.accelerator}")
    return image_for(gfx, export.torch) if gfx else None


def _downloads(name: str, patterns: tuple[str, ...], files: list[str]) -> list[tuple[str, str]]:
    """Return from where to where rsync brings things: folders whole, else files by their names."""
    there = f"{name}:sky_workdir"
    whole = [(f"{there}/{each}/", f"{each}/") for each in folders(patterns) if each != "."]
    return [*whole, *((f"{there}/{each}", "./") for each in files)] or [(f"{there}/", "./")]
