"""One thing that could be the failure, and what numbers tell apart where words do not."""

from __future__ import annotations

import re
from typing import NamedTuple

from rocsteady.failures.gpu_memory import FULL, kind_of_oom
from rocsteady.failures.symptoms import Symptoms
from rocsteady.model import Certainty, Role

PLENTY = 1 << 30  # bytes of free disk at which a failed write was not for lack of room


class Candidate(NamedTuple):
    """One thing that could be the failure."""

    kind: str
    role: Role
    certainty: Certainty
    at: float  # later is larger
    seen: tuple[str, ...]
    signature: str = ""
    alone: bool = True
    place: str = ""
    rank: int | None = None
    traceback: str = ""
    bare: bool = False  # an exception without its traceback


def refined(kind: str, text: str, symptoms: Symptoms) -> str:
    """Tell kinds apart that only numbers tell apart."""
    if kind == FULL:
        return kind_of_oom(text)
    guessed = not re.search(r"(?i)no space|quota|disk is full|os error 28|\[Errno 28\]", text)
    if kind == "disk-full" and guessed and (symptoms.disk_free or 0) > PLENTY:
        return "disk-error"
    return kind


def told_place(found: re.Match[str]) -> str:
    """Return what a pattern ties the failure to: a kernel, a library, a device."""
    return (found.groupdict().get("place") or "").strip()
