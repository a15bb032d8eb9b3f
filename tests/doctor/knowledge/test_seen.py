"""Our variables against what real libraries hold."""

from __future__ import annotations

from rocsteady.doctor.knowledge.library_contents import load_seen
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
    seen = load_seen()

    assert seen.gone_from("HSA_ENABLE_SDMA") is None
    assert seen.gone_from("NCCL_WORK_FIFO_DEPTH") == ("RCCL 7.2.4, last seen in 5.4.3", "7.2.4")


def test_the_readers_of_gpu_code_find_what_two_releases_of_rocblas_have() -> None:
    code = load_seen().code

    assert {"gfx906", "gfx90a", "gfx1030", "gfx1100"} <= set(code["rocBLAS 6.4.4"])
    assert set(code["rocBLAS 7.2.4"]) - set(code["rocBLAS 6.4.4"]) >= {"gfx942", "gfx1201"}
    assert "gfx1100" in code["RCCL 5.4.3"]  # from its .hip_fatbin, not from names of files


def test_each_variable_says_where_it_was_found(knowledge: Knowledge) -> None:
    seen = load_seen()
    told = {it.name: seen.where(it.name, it.read_by) for it in knowledge.variables.values()}

    assert told["HSA_ENABLE_SDMA"] == "libhsa-runtime64 6.1.2 and 6.4.3 and 7.2.4"
    assert told["ROCBLAS_USE_HIPBLASLT"] == "not found in any library looked at"
    assert told["PYTORCH_ALLOC_CONF"] == "in a part that could not be looked at"
    assert all(told.values())
