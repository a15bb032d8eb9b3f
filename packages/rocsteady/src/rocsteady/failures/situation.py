"""All that the ladder looks at: what failed, where, under what strategy, after what history."""

from __future__ import annotations

import msgspec

from rocsteady.doctor.knowledge.failures import Component, Nature
from rocsteady.doctor.knowledge.values import Fix
from rocsteady.doctor.machine.machine import Machine
from rocsteady.model import BatchSplit, FailedAttempt, Failure, LoaderFacts, Strategy, Value

NEEDS = ("gpu", "rocm", "rocr")  # what a remedy may have no effect without


class Budget(Value, frozen=True, kw_only=True):
    """How many attempts a run may cost without progress; what clears up by itself costs none."""

    tries: int = 8  # that end in the same kind of failure, since the last progress
    without_progress: int = 16  # in a row, whatever they end in


class Situation(Value, frozen=True, kw_only=True):
    """Where a run stands after an attempt failed."""

    failure: Failure
    nature: Nature
    clears: bool = False  # it can clear up by itself
    component: Component = Component.UNKNOWN
    person: Fix | None = None  # what somebody must do, where nobody else can
    strategy: Strategy  # that failed
    tried: tuple[
        FailedAttempt, ...
    ]  # oldest first; the last is the attempt that failed with ``failure``
    machine: Machine
    variables: dict[str, str] = msgspec.field(default_factory=dict)  # as the user has them
    loader: LoaderFacts | None = None  # None: no DataLoader was seen
    batch_split: BatchSplit | None = (
        None  # None: it was not seen to train through rocsteady_train.Loop
    )
    precision: str = ""  # the lowest that the script computed in: fp32, bf16, fp16; "": not known
    can_resume: bool = False
    checkpoints: int = 0  # whole ones that are known
    ranks: int = 1
    gpus: int = 0  # that the run sees
    gfx: tuple[str, ...] = ()  # of these; what the driver says of all cards, if this is empty
    arches: tuple[str, ...] = ()  # that torch has code for; what its files say, if this is empty
    ineffective: tuple[str, ...] = ()  # settings that had nothing to act on, or were refused inside
    crashed_machine: tuple[Strategy, ...] = ()  # under which it went down
    helped_before: tuple[str, ...] = ()  # remedies that mended this script on this machine
    allow: tuple[str, ...] = ()  # only these; empty: all
    deny: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # though they change numbers
    budget: Budget = Budget()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that an attempt with the strategy sees."""
        merged = {**self.variables, **self.strategy.variables}
        return {name: value for name, value in merged.items() if value is not None}

    @property
    def gfx_names(self) -> tuple[str, ...]:
        """What the GPUs are, as far as that is known. Beside a card, the APU does not count."""
        gpus = self.machine.gpus.gpus
        cards = [gpu for gpu in gpus if not gpu.integrated] or gpus
        return self.gfx or tuple(dict.fromkeys(gpu.gfx for gpu in cards if gpu.gfx))

    def lacks(self, need: str) -> str:
        """Return why what only a GPU, ROCm or ROCr obeys has no effect here; "" if it may have."""
        torch = self.machine.torch
        if need == "rocr" and self.machine.system.os == "windows":
            return "ROCr, which reads the variable, does not exist on Windows"
        if need in ("rocm", "rocr") and torch is not None and torch.build != "rocm":
            return f"torch {torch.version} is not built for ROCm"
        if need and self.strategy.device == "cpu":
            return "the run does not use GPUs"
        return "no GPU was found" if need and not self.gpus else ""


class Refused(Value, frozen=True, kw_only=True):
    """Why a remedy is not right here; half a sentence."""

    why: str
    was_tried: bool = False
    needs_consent: bool = False
