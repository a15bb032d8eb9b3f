"""Every remedy, cheapest first. Not in this table, not tried."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rocsteady.remedies.remedy import Rung
from rocsteady.remedies.rungs import (
    allocator_expandable,
    allocator_no_split,
    attention_fused,
    attention_math,
    checkpoint_back,
    compile_off,
    cpu,
    fresh_process,
    gfx_override_off,
    hipblaslt_off,
    interrupts_off,
    loader_fewer_workers,
    loader_forkserver,
    loader_inline,
    loader_spawn,
    miopen_fast_find,
    omp_threads,
    p2p_off,
    precision_bf16,
    precision_fp32,
    retry,
    sdma_off,
    single_gpu,
    smaller_part,
    unset_variable,
)

_RUNGS: tuple[Rung, ...] = (
    retry,
    unset_variable,
    gfx_override_off,
    allocator_expandable,
    allocator_no_split,
    attention_fused,
    hipblaslt_off,
    miopen_fast_find,
    interrupts_off,
    sdma_off,
    compile_off,
    loader_forkserver,
    loader_spawn,
    loader_fewer_workers,
    loader_inline,
    smaller_part,
    omp_threads,
    fresh_process,
    precision_bf16,
    attention_math,
    checkpoint_back,
    p2p_off,
    precision_fp32,
    single_gpu,
    cpu,
)
RUNGS: Mapping[str, Rung] = MappingProxyType({rung.REMEDY.id: rung for rung in _RUNGS})
