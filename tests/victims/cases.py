"""The table of all victims: what each is, how it is started, and what a watcher must say of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).parent


class Kind(Enum):
    HANG = "hang"  # said to be hung within so many seconds, at this place
    STOPPED = "stopped"  # state T; goes on when continued
    SLOW = "slow"  # cannot be told from long work: said to be slow, with its place
    LOOK_ALIKE = "look-alike"  # ends by itself with DONE and 0, and must be left alone
    AT_EXIT = "at-exit"  # the work is done, only the process does not end: it is ended, and never
    # counts as done by itself, because it was killed
    HELPER = "helper"  # for tests of other things


# What the test does beside starting it. "reader": the output goes into reader_stops.py. "typist":
# types `c` and return after the pause. "job control": ^Z for the pause, then fg. "suspend": SIGSTOP
# for the watcher and the tree for the pause, then SIGCONT.
Deed = Literal["", "reader", "typist", "job control", "suspend"]


@dataclass(frozen=True, kw_only=True)
class Victim:
    """One script with its arguments. Times are seconds, with VICTIM_SPEED 1."""

    name: str
    kind: Kind
    run: str = ""  # the script with its arguments, if it is not NAME.py
    ranks: int = 1  # more than one: by torchrun
    within: float | None = None  # from the last step, or the start if there is none, to the verdict
    place: str = ""  # what one frame of the stack must name
    needs: tuple[str, ...] = ()  # programs, beside Python
    torch: bool = True
    pause: float = 0  # what VICTIM_SPEED divides
    rest: float = 12  # what it does not: imports, steps
    deed: Deed = ""

    @property
    def path(self) -> Path:
        return HERE / (self.run.split() or [f"{self.name}.py"])[0]

    def lasts(self, speed: float) -> float:
        """Give about how long it lasts with this VICTIM_SPEED."""
        return self.rest + self.pause / speed

    def command(self, python: str) -> list[str]:
        """Give what a person would type, with this interpreter."""
        script = [str(self.path), *self.run.split()[1:]]
        if self.ranks == 1:
            return [python, *script]
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}"]
        return [python, *torchrun, *script]


def _hang(name: str, within: float, place: str, **more: Any) -> Victim:  # noqa: ANN401 - any field
    return Victim(name=name, kind=Kind.HANG, within=within, place=place, **more)


def _slow(name: str, place: str, **more: Any) -> Victim:  # noqa: ANN401 - any field
    return Victim(name=name, kind=Kind.SLOW, within=60, place=place, **more)


def _stopped(name: str, argument: str) -> Victim:
    return Victim(
        name=name,
        kind=Kind.STOPPED,
        within=12,
        place="stop_here",
        run=f"mid_training.py {argument}",
    )


def _look_alike(name: str, pause: float, *needs: str, **more: Any) -> Victim:  # noqa: ANN401 - any field
    return Victim(name=name, kind=Kind.LOOK_ALIKE, pause=pause, needs=needs, **more)


VICTIMS: tuple[Victim, ...] = (
    _hang("hang_backward_gil", 12, "fused_backward"),
    _hang("hang_worker_semaphore", 12, "take_reader"),
    _hang("hang_allreduce", 12, "flush_metrics", ranks=2),
    _hang("hang_lock_across_fork", 12, "look_up"),
    # The thread that redraws the bar sleeps, and could hold the semaphore: this is no proof.
    _slow("hang_worker_with_tracker", "take_reader"),
    _hang("hang_at_import", 120, "load_plugins"),
    _hang("hang_first_step", 120, "build_kernel", run="first_step.py lock"),
    _stopped("stopped_self", "stop"),
    _stopped("stopped_again", "stop-twice"),
    _slow("endless_python_loop", "balance_classes", run="mid_training.py python-loop"),
    _slow("endless_native", "clean_caption", run="mid_training.py native-loop"),
    _slow("worker_sleeps", "wait_for_shard"),
    Victim(name="hang_at_exit", kind=Kind.AT_EXIT, place="upload_for_ever"),
    Victim(
        name="hang_at_exit_handler",
        kind=Kind.AT_EXIT,
        run="hang_at_exit.py --atexit",
        place="upload_for_ever",
    ),
    _look_alike(
        "first_step_compiler_child",
        90,
        "gcc",
        place="compile_kernels",
        run="first_step.py compiler",
    ),
    _look_alike("first_step_files_grow", 90, place="fill_cache", run="first_step.py files"),
    _look_alike(
        "in_process_compile", 120, place="compile_in_process", run="first_step.py in-process"
    ),
    _look_alike("torch_compile_real", 0, "g++", rest=100),
    _look_alike("tuning_prints", 100, place="tune", run="first_step.py tuning"),
    _look_alike("validation_60s", 60, place="validate", run="mid_training.py validation"),
    _look_alike("native_op_30s", 30, place="decompose", rest=15, run="mid_training.py native 30"),
    _look_alike(
        "native_op_150s", 150, run="mid_training.py native 150", place="decompose", rest=25
    ),
    _look_alike("micro_steps_500", 60, rest=8),
    _look_alike("micro_steps_500_no_loader", 60, run="micro_steps_500.py --no-loader", rest=8),
    _look_alike("scaler_skips", 60),
    _look_alike("growing_steps", 228),
    _look_alike("debugger_attached", 60),
    _look_alike("prints_to_stopped_reader", 60, deed="reader"),
    _look_alike(
        "breakpoint_waits", 60, place="look_around", deed="typist", run="mid_training.py breakpoint"
    ),
    _look_alike("stopped_by_terminal", 60, run="steady.py", deed="job control"),
    _look_alike("all_suspended", 60, run="steady.py", deed="suspend"),
    _look_alike("no_torch_prints", 90, rest=1, torch=False),
    _look_alike("no_torch_computes", 150, rest=1, place="cluster", torch=False),
    Victim(name="steady", kind=Kind.HELPER),
    Victim(name="crash_at", kind=Kind.HELPER),
    Victim(name="cannot_resume", kind=Kind.HELPER),
)
