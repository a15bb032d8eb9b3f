"""A task for SkyPilot: the project goes up, the job is done, the model comes down."""

from __future__ import annotations

import shlex

from rocsteady.errors import RocsteadyError
from rocsteady.exit_codes import RETRY
from rocsteady.exports.export import Export, slug, torch_release
from rocsteady.exports.file_header import comments, of_schedulers, remarks
from rocsteady.exports.images import ACCELERATORS, AS_OF, Image, image_for
from rocsteady.exports.shell import (
    ENVIRONMENT,
    environment,
    folders,
    install,
    job_line,
    rendezvous,
)
from rocsteady.exports.torchrun_command import several_hosts, torchrun_hosts
from rocsteady.exports.yaml_text import as_yaml

WORKDIR = "~/sky_workdir"
COPIES = "files-of-the-project"  # a folder of the bucket
IDLE = 60  # minutes until a machine that has nothing to do is given back
FACTS = "task keys as SkyPilot 0.14.1 validates them (2026-11-15)"
TO_THE_BUCKET = (
    "Checkpoints and models are uploaded to the bucket during the run. If the run is killed"
    " before a checkpoint is uploaded, it resumes from the previous one. Files in the"
    " project's own folder are copied to the bucket only at the end. Start from the project"
    " folder:"
)
NO_BUCKET = (
    f"No bucket is mounted, so download the model before the machine is deleted, {IDLE} minutes"
    " after the end. From the project folder:"
)
# Clouds on which SkyPilot 0.14.1 mounts no buckets.
NO_MOUNTS = frozenset({"hyperbolic", "runpod", "seeweb", "shadeform", "vast", "verda", "yotta"})
ONE_HOST = frozenset({"runpod", "vast"})  # clouds on which SkyPilot 0.14.1 takes one machine only
FIRST_HOST = '$(echo "$SKYPILOT_NODE_IPS" | head -n 1)'
# SkyPilot puts a Python of its own in front; the image's is the one that has torch.
FIND_TORCH = """\
for python in /opt/venv/bin/python3 /opt/conda/envs/py_*/bin/python3 /usr/bin/python3; do
    if "$python" -c 'import torch' 2>/dev/null; then
        break
    fi
done
PATH="${python%/*}:$PATH"
export PATH PIP_BREAK_SYSTEM_PACKAGES=1
"""


def task(export: Export) -> str:
    """Write the task."""
    if not export.accelerator:
        raise RocsteadyError("a SkyPilot task needs a GPU to rent: choose a cloud option")
    if several_hosts(export.command) and _cloud(export) in ONE_HOST:
        raise RocsteadyError(f"SkyPilot does not run a job on several machines of {export.infra}")
    image = _image(export)
    facts = f"{FACTS}; image as of {AS_OF} from {image.source}." if image else f"{FACTS}."
    what = remarks(export, "A task for SkyPilot.", facts)
    head = [*what, *of_schedulers(export), *_how(export)]
    return "\n".join(comments(head)) + "\n" + as_yaml(_table(export, image))


def _table(export: Export, image: Image | None) -> dict[str, object]:
    mounts = _mounts(export)
    hosts = torchrun_hosts(export.command)
    meet = rendezvous(export, FIRST_HOST, "$SKYPILOT_TASK_ID")
    return {
        "name": slug(export.name),
        "workdir": ".",
        **({"num_nodes": hosts.most} if hosts and hosts.most > 1 else {}),
        "resources": _resources(export, image),
        **({"file_mounts": mounts} if mounts else {}),
        "setup": _lines("set -e", *_torch(export, image), *install(export)),
        "run": _lines(*_activate(image), *environment(export), *meet, *_run(export, mounts)),
    }


def _image(export: Export) -> Image | None:
    """Return the image for a card of AMD's; one of NVIDIA's gets torch by pip."""
    gfx = ACCELERATORS.get(export.accelerator)
    if gfx is None and export.accelerator.startswith("MI"):
        raise RocsteadyError(f"no AMD image is known for {export.accelerator}")
    return image_for(gfx, export.torch) if gfx else None


def _resources(export: Export, image: Image | None) -> dict[str, object]:
    table: dict[str, object] = {"accelerators": f"{export.accelerator}:{export.gpus}"}
    if export.infra:
        table = {"infra": export.infra, **table}
    if image:
        table["image_id"] = f"docker:{image.name}"
    if export.max_hourly_cost:
        table["max_hourly_cost"] = export.max_hourly_cost
    table["autostop"] = {"idle_minutes": IDLE, "down": True}
    table["job_recovery"] = {"recover_on_exit_codes": [RETRY]}  # rocsteady did the other retries
    return table


def _torch(export: Export, image: Image | None) -> list[str]:
    if image:
        return [FIND_TORCH.rstrip()]
    release = torch_release(export.torch)
    torch = f"torch=={release}" if release else "torch"
    return [
        f"python3 -m venv ~/{ENVIRONMENT}",
        f". ~/{ENVIRONMENT}/bin/activate",
        f"python3 -m pip install {shlex.quote(torch)}",
    ]


def _activate(image: Image | None) -> list[str]:
    return [FIND_TORCH.rstrip()] if image else [f". ~/{ENVIRONMENT}/bin/activate"]


def _mounts(export: Export) -> dict[str, dict[str, str]]:
    """Put folders with checkpoints and models on a bucket, where the cloud can do that."""
    if not export.bucket or _cloud(export) in NO_MOUNTS:
        return {}
    bucket = f"{export.bucket.rstrip('/')}/{slug(export.name)}"
    written = folders((*export.checkpoints, *export.outputs))
    return {
        f"{WORKDIR}/{folder}": {"source": f"{bucket}/{folder}", "mode": "MOUNT_CACHED"}
        for folder in (COPIES if folder == "." else folder for folder in written)
    }


def _cloud(export: Export) -> str:
    return export.infra.partition("/")[0]


def _run(export: Export, mounts: dict[str, dict[str, str]]) -> list[str]:
    """Do the job; what it wrote into the project's own folder is copied to the bucket after it."""
    if f"{WORKDIR}/{COPIES}" not in mounts:
        return [job_line(export)]
    here = [name for name in (*export.checkpoints, *export.outputs) if "/" not in name]
    copies = [
        f"find . -maxdepth 1 -type f -name {shlex.quote(name)} -exec cp {{}} {COPIES}/ \\;"
        for name in dict.fromkeys(here)
    ]
    return ["code=0", f"{job_line(export)} || code=$?", *copies, 'exit "$code"']


def _how(export: Export) -> list[str]:
    """Say how it is started, and how the model comes back."""
    name = slug(export.name)
    up = (
        "The project folder is uploaded, except for what .skyignore lists (or .gitignore, if"
        " there is no .skyignore): these must not list data that the run needs."
        f" {export.rocsteady} must be in the folder."
    )
    if _mounts(export):
        return [up, TO_THE_BUCKET, f"    sky jobs launch --name {name} {name}.yaml"]
    return [
        up,
        NO_BUCKET,
        f"    sky launch --cluster {name} {name}.yaml",
        *(f"    {shlex.join(('rsync', '-Pavz', *way))}" for way in _down(export)),
        f"    sky down {name}",
    ]


def _down(export: Export) -> list[tuple[str, str]]:
    """Return from where to where rsync brings things: folders whole, else files by their names."""
    there = f"{slug(export.name)}:sky_workdir"
    patterns = (*export.checkpoints, *export.outputs)
    whole = [(f"{there}/{each}/", f"{each}/") for each in folders(patterns) if each != "."]
    files = [(f"{there}/{each}", "./") for each in dict.fromkeys(patterns) if "/" not in each]
    return [*whole, *files] or [(f"{there}/", "./")]


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)
