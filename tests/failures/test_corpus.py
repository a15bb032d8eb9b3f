"""The figures that the documentation states, on texts that were never looked at for it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rocsteady.doctor.knowledge.failures import find_message
from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.model import FailureKind

LOGS = Path(__file__).parents[1] / "logs"


@cache
def scores() -> dict[str, dict[str, Any]]:
    command = [sys.executable, str(LOGS / "score.py"), "--json"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    found: dict[str, dict[str, Any]] = json.loads(told.stdout)
    return found


@pytest.mark.parametrize(
    ("part", "precision", "named"), [("tuning", 0.97, 0.9), ("held-out", 0.95, 0.8)]
)
def test_failures_are_named_right(part: str, precision: float, named: float) -> None:
    assert scores()[part]["precision"] >= precision
    assert scores()[part]["share_named"] >= named


def test_nothing_is_named_in_healthy_output() -> None:
    assert scores()["healthy"]["named"] == 0


REPORTS = tomllib.loads((Path(__file__).parent / "reports.toml").read_text("utf-8"))["report"]


def symptoms(report: dict[str, Any]) -> Symptoms:
    kernel = report.get("what") == "kernel"
    return Symptoms(
        log="" if kernel else report["text"],
        kernel=tuple(report["text"].splitlines()) if kernel else (),
        exit_code=report.get("exit"),
        signal=report.get("signal"),
        hung=False,
    )


def measured(classifier: Classifier) -> tuple[float, float]:
    """Return precision and the share that was named; single reports are not to be looked at."""
    named = [(it["failure"], classifier.name(symptoms(it)).kind) for it in REPORTS]
    known = [(is_, called) for is_, called in named if called != FailureKind.UNKNOWN]
    right = sum(is_ == called for is_, called in known)
    return right / len(known), len(known) / len(REPORTS)


def test_reports_are_named_right(classifier: Classifier) -> None:
    precision, share = measured(classifier)

    assert precision == pytest.approx(1, abs=0.07), f"precision {precision:.3f}"
    assert share >= 0.8, f"share named {share:.3f}"


MESSAGES = tomllib.loads((Path(__file__).parent / "messages.toml").read_text("utf-8"))["message"]


def called(classifier: Classifier, text: str) -> str:
    """Return what explain says of a text: the failure, or that the line is none."""
    kind = classifier.name(Symptoms(log=text)).kind
    return "note" if kind == FailureKind.UNKNOWN and find_message(text) else kind


@pytest.mark.parametrize(
    "message", [it for it in MESSAGES if it["part"] == "tuning"], ids=lambda it: it["source"]
)
def test_messages_of_2026_are_named(classifier: Classifier, message: dict[str, Any]) -> None:
    assert called(classifier, message["text"]) == message["failure"]


def test_messages_of_2026_that_are_held_out_are_named_right_or_not_at_all(
    classifier: Classifier,
) -> None:
    named = [
        (it["failure"], called(classifier, it["text"]))
        for it in MESSAGES
        if it["part"] == "held-out"
    ]
    known = [(is_, name) for is_, name in named if name != FailureKind.UNKNOWN]

    assert sum(is_ != name for is_, name in known) <= 1
    assert len(known) >= 0.7 * len(named)


LINES = {
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 124.00 MiB. GPU 0 has a total "
    "capacity of 19.94 GiB of which 554.47 MiB is free. Of the allocated memory 15.87 GiB is "
    "allocated by PyTorch, and 165.29 MiB is reserved by PyTorch but unallocated.": "oom-device",
    "HW Exception by GPU node-9 (Agent handle: 0x631351bb5a20) reason :GPU Hang": "gpu-hang",
    "Memory access fault by GPU node-1 (Agent handle: 0x55f8b54eec30) on address 0x7f2a53193000. "
    "Reason: Page not present or supervisor privilege.": "memory-access-fault",
    "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=16060, emitted "
    "seq=16062": "gpu-ring-timeout",
    "amdgpu: MES failed to respond to msg=REMOVE_QUEUE": "gpu-mes-failure",
    "amdgpu 0000:0a:00.0: amdgpu: GPU reset begin!": "gpu-reset",
    ":0:rocdevice.cpp :3596: 998574369737 us:  Callback: Queue 0x7daa52e00000 aborting with error "
    ": HSA_STATUS_ERROR_INVALID_ISA: The instruction set architecture is invalid. code: 0x100f": (
        "no-code-for-gpu"
    ),
    "Device::callbackQueue aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The "
    "agent attempted to access memory beyond the largest legal address. code: 0x29": (
        "memory-access-fault"
    ),
    "Call returned HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary "
    "resources.": "hsa-out-of-resources",
    "Callback: Queue 0x772c40900000 aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL "
    "operation resulted in a hardware exception. code: 0x1016": "gpu-launch-failure",
    "RuntimeError: HIP error: invalid device function": "no-code-for-gpu",
    "RuntimeError: miopenStatusUnknownError": "miopen-failure",
    "MIOpen(HIP): Error [Compile] 'hiprtcCompileProgram(prog.get())' MIOpenNeuron.cpp: "
    "HIPRTC_ERROR_COMPILATION (6)": "miopen-failure",
    "RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error. It is possible "
    "that dataloader's workers are out of shared memory.": "shm-too-small",
    "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek for "
    "GPU arch : gfx1103": "no-code-for-gpu",
    "RuntimeError: CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`": (
        "blas-handle-failed"
    ),
    "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!": (
        "no-code-for-gpu"
    ),
    "RuntimeError: HIP error: an illegal memory access was encountered": "memory-access-fault",
    "Unable to open /dev/kfd read-write: Permission denied": "no-access-to-gpu",
}


@pytest.mark.parametrize(("line", "kind"), LINES.items())
def test_each_line_alone_is_named(classifier: Classifier, line: str, kind: str) -> None:
    assert classifier.name(Symptoms(log=line)).kind == kind


@pytest.mark.parametrize(("line", "kind"), LINES.items())
def test_each_line_is_named_at_the_end_of_a_training_log(
    classifier: Classifier, line: str, kind: str
) -> None:
    log = "".join(f"epoch 1 step {step} loss 0.{step:03}\n" for step in range(400))

    failure = classifier.name(Symptoms(log=f"{log}{line}\n", exit_code=1))

    assert failure.kind == kind
    assert failure.seen[0].startswith(line[:60])


TUNING = Path(__file__).parents[1] / "logs" / "tuning"
LEAST = 0.97  # of the texts


def each(line: Callable[[int, str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(line(at, it) for at, it in enumerate(text.split("\n")))


FORMATS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "torchrun's label": each(lambda _, it: f"[rank3]: {it}"),
    "srun's label": each(lambda _, it: f"3: {it}"),
    "mpirun's label": each(lambda _, it: f"[1,3]<stderr>:{it}"),
    "Ray's label": each(lambda _, it: f"(RayTrainWorker pid=4711, ip=10.0.0.3) {it}"),
    "a container's name": each(lambda _, it: f"trainer_1  | {it}"),
    "times": each(lambda at, it: f"2025-11-14T10:00:{at % 60:02}.123Z {it}"),
    "times and levels": each(lambda at, it: f"[2025-11-14 10:00:{at % 60:02},123] [ERROR] {it}"),
    "quoted": each(lambda _, it: f"> {it}"),
    "coloured": each(lambda _, it: f"\x1b[31m{it}\x1b[0m"),
    "indented": each(lambda _, it: f"    {it}"),
    "of Windows": lambda text: text.replace("\n", "\r\n"),
    "after much progress": lambda text: "step 1 loss 0.5 2.4it/s\n" * 50 + text,
    "before a summary": lambda text: f"{text}\nwandb: Run summary:\nwandb: train/loss 0.3\n",
    "twice": lambda text: f"{text}\n{text}",
}


@cache
def texts() -> tuple[tuple[str, Symptoms], ...]:
    spec = importlib.util.spec_from_file_location("score", TUNING.parent / "score.py")
    assert spec is not None
    assert spec.loader is not None
    score = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(score)
    return tuple(
        (text.label, text.symptoms)
        for text in score.texts("tuning")
        if text.symptoms.log and not text.symptoms.hung
    )


def named(classifier: Classifier, write: Callable[[str], str]) -> Iterator[bool]:
    for label, symptoms in texts():
        written = msgspec.structs.replace(symptoms, log=write(symptoms.log))
        yield classifier.name(written).kind == label


@pytest.mark.parametrize("form", FORMATS)
def test_the_form_of_a_line_does_not_matter(classifier: Classifier, form: str) -> None:
    right = list(named(classifier, FORMATS[form]))

    assert sum(right) >= LEAST * len(right)
