"""Our variables against what real libraries hold."""

from __future__ import annotations

from rocsteady.doctor.knowledge.library_contents import gone_from, load_seen
from rocsteady.doctor.knowledge.reader import Knowledge

LIBRARIES = {  # what our list calls a reader, and where it was looked for
    "HIP": "libamdhip64",
    "ROCr": "libhsa-runtime64",
    "MIOpen": "MIOpen",
    "RCCL": "RCCL",
    "rocBLAS": "rocBLAS",
    "hipBLASLt": "hipBLASLt",
}


def test_nearly_all_of_our_variables_were_seen_in_the_library_that_reads_them(
    knowledge: Knowledge,
) -> None:
    ours = [it for it in knowledge.variables.values() if it.read_by in LIBRARIES]
    unseen = {it.name for it in ours if it.name not in load_seen().names}

    assert 1 - len(unseen) / len(ours) >= 0.95
    assert unseen == {  # named by AMD in ROCm#5581; Debian builds rocBLAS without hipBLASLt
        "AMD_LOG_ASYNC",  # newer than what was looked at, by the source or the change log
        "HIP_MAX_SIGNAL_WAIT",
        "HIP_SKIP_ABORT_ON_GPU_ERROR",
        "MIOPEN_USE_HIPBLASLT",
        "NCCL_GIN_TYPE",
        "ROCBLAS_USE_HIPBLASLT",
        "ROCBLAS_USE_HIPBLASLT_BATCHED",
        "ROCBLAS_VERBOSE_HIPBLASLT_ERROR",
        "ROCBLAS_VERBOSE_TENSILE_ERROR",
    }


def test_a_name_that_is_gone_says_since_when() -> None:
    assert gone_from("HSA_ENABLE_SDMA") is None
    assert gone_from("NCCL_WORK_FIFO_DEPTH") == ("RCCL 7.2.4, last seen in 5.4.3", "7.2.4")
