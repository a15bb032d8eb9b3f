"""Nineteen lines that AMD users meet and that the best open classifier mostly does not know."""

from __future__ import annotations

import pytest

from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms

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


def test_there_are_nineteen() -> None:
    assert len(LINES) == 19


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
