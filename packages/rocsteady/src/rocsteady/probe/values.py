"""What came of probes and drills, as screens and ``--json`` show it."""

from __future__ import annotations

from rocsteady.model import Observation, ProbeOutcome, Value

VERBS = {
    ProbeOutcome.WRONG: "computes wrong numbers",
    ProbeOutcome.EXCEPTION: "raises an error",
    ProbeOutcome.HANG: "hangs",
    ProbeOutcome.CRASH: "crashes",
    ProbeOutcome.NO_MEMORY: "runs out of memory",
    ProbeOutcome.UNKILLABLE: "hangs and cannot be killed",
    ProbeOutcome.WENT_DOWN: "crashed the machine",
}


class ProbeLine(Value, frozen=True, kw_only=True):
    observation: Observation
    what: str = "tries"  # what a try is
    one_in: int = 1  # M of "fewer than 1 in M fails, 95 %"; 1 says nothing


class FaultResult(Value, frozen=True, kw_only=True):
    fault: str  # as it was written
    fired: bool  # False: the run did not get there
    step: int | None = None  # that was being made
    attempt: int | None = None
    seen_after: float | None = None  # seconds; None: rocsteady had nothing to see
    called: str = ""  # the kind of the failure
    done: str = ""
    went_on_from: int | None = None  # step, about; 0: the beginning; None: no attempt came after
    survived: bool = False


class DrillResult(Value, frozen=True, kw_only=True):
    """What came of a drill; the value behind both the screen and ``--json``."""

    version: int = 1
    command: tuple[str, ...]
    faults: tuple[FaultResult, ...]
    can_resume: bool  # a way to resume is known
    ended: str  # how the run ended
    not_tried: tuple[str, ...]
    changed: tuple[str, ...] | None  # paths of the user's folder; None: could not be looked over
    on_gpu: bool = False  # this machine has a GPU that the script could use
    kept: str = ""  # the folder with log and evidence, if it was kept
    next_command: str = ""  # what to type next

    @property
    def all_survived(self) -> bool:
        return all(fault.survived for fault in self.faults)

    @property
    def steps_twice(self) -> int:
        """How many steps had to be made again, about."""
        again = [
            fault.step - 1 - fault.went_on_from
            for fault in self.faults
            if fault.step is not None and fault.went_on_from is not None
        ]
        return sum(max(0, steps) for steps in again)
