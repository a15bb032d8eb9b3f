"""What is to be done elsewhere, as a value: all that a file for another place is made of."""

from __future__ import annotations

import re

import msgspec

from rocsteady.model import Value

LONGEST = 40  # characters of a name; SkyPilot, Slurm and Kubernetes all take it


class Export(Value, frozen=True, kw_only=True):
    """A job, and the option of the plan that is to be taken with it."""

    name: str  # of the project
    command: tuple[str, ...]
    written: str  # the day: 2026-11-15
    folder: str = ""  # the project's own, here
    checkpoints: tuple[str, ...] = ()  # patterns, from the project's folder
    resume: tuple[str, ...] = ()  # arguments with which the command goes on
    outputs: tuple[str, ...] = ()  # patterns of the files that a job that is done has written
    requirements: str = ""  # a file for pip, from the project's folder; "": there is none
    gfx: str = ""  # of the GPU that it is for: gfx1100
    gpu: str = ""  # its name
    gpus: int = 1
    torch: str = ""  # as it is installed: 2.8.0+rocm6.4, or 2.8.0; "": not known
    rocm: str = ""  # that this torch is built for: 6.4
    deadline: str = ""  # in words
    due: float | None = None  # seconds from the day it is written to the deadline
    infra: str = ""  # where SkyPilot takes the GPU from: runpod, vast, kubernetes
    accelerator: str = ""  # its name there: RTX4090, MI300X
    max_hourly_cost: float | None = None  # dollars
    bucket: str = ""  # s3://..., where the model may be put
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    unset: tuple[str, ...] = ()  # variables that must not be set
    setup: tuple[float, float] | None = None  # minutes of work by hand
    notes: tuple[str, ...] = ()  # sentences that whoever sets it up should know
    rocsteady: str = "./rocsteady"  # what pip installs it from; there is no release yet


def slug(name: str) -> str:
    """Give a name that each of these systems takes."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "-".join(words)[:LONGEST].strip("-") or "training"


def torch_release(torch: str) -> str:
    """Return a version of torch without what it was built for: 2.8.0 of 2.8.0+rocm6.4."""
    return torch.partition("+")[0]
