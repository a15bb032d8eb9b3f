"""Which remedy is right on which machine, and what it changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.knowledge.reader import DataFolder
from rocsteady.doctor.machine.machine import Machine
from rocsteady.errors import KnowledgeError
from rocsteady.failures.computed import COMPUTED
from rocsteady.failures.remedy import ANY, load_remedies, requested_strategy
from rocsteady.failures.situation import Refused, Situation
from rocsteady.model import BatchSplit, FailedAttempt, Fingerprint, Strategy

if TYPE_CHECKING:
    from tests.conftest import Recorded
    from tests.failures.remedies.conftest import Situations


def applied(remedy: str, situation: Situation) -> Strategy:
    result = load_remedies()[remedy].apply(situation)
    assert isinstance(result, Strategy), result
    return result


def refused(remedy: str, situation: Situation) -> str:
    result = load_remedies()[remedy].apply(situation)
    assert isinstance(result, Refused), result
    return result.why


def with_torch(machine: Machine, version: str, rocm: str) -> Machine:
    assert machine.torch is not None
    torch = msgspec.structs.replace(machine.torch, version=version, rocm=rocm)
    return msgspec.structs.replace(machine, torch=torch)


def with_kernel(machine: Machine, kernel: str) -> Machine:
    return msgspec.structs.replace(
        machine, system=msgspec.structs.replace(machine.system, kernel=kernel)
    )


@pytest.mark.parametrize(
    ("remedy", "kind", "on", "change"),
    [
        ("interrupts-off", "hang-in-sync", "strix-halo", "HSA_ENABLE_INTERRUPT=0"),
        ("interrupts-off", "hang-in-sync", "rx7900xtx", "HSA_ENABLE_INTERRUPT=0"),
        ("sdma-off", "hang-in-copy", "strix-halo", "HSA_ENABLE_SDMA=0"),
        ("sdma-off", "hang-in-copy", "old-kernel", "HSA_ENABLE_SDMA=0"),
        ("hipblaslt-off", "gpu-reset", "r9700-pair", "TORCH_BLAS_PREFER_HIPBLASLT=0"),
        ("hipblaslt-off", "blas-error", "mi210-current", "TORCH_BLAS_PREFER_HIPBLASLT=0"),
        ("miopen-fast-find", "miopen-failure", "rx9070xt-windows", "MIOPEN_FIND_MODE=2"),
        ("omp-threads", "hang-in-loader", "rx7900xtx", "OMP_NUM_THREADS=1"),
        ("xet-off", "hang-in-download", "no-amd-gpu", "HF_HUB_DISABLE_XET=1"),
        ("nhwc-off", "miopen-failure", "steam-deck", "PYTORCH_MIOPEN_SUGGEST_NHWC=0"),
        ("rocblas-alone", "hang-in-backward", "rx9070xt", "ROCBLAS_USE_HIPBLASLT=0"),
        ("allocator-off", "memory-access-fault", "rx9060xt", "PYTORCH_NO_HIP_MEMORY_CACHING=1"),
        ("miopen-direct-off", "hang-in-kernel-search", "rx7900xtx", "MIOPEN_DEBUG_CONV_DIRECT=0"),
        ("miopen-cache-off", "miopen-cache", "rx7900xtx", "MIOPEN_DISABLE_CACHE=1"),
        ("fewer-queues", "gpu-queues-exhausted", "rx7900xtx", "GPU_MAX_HW_QUEUES=1"),
        ("aotriton-off", "nan-loss", "radeon-890m", "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=0"),
        ("compile-one-thread", "hang-in-compile", "no-amd-gpu", "TORCHINDUCTOR_COMPILE_THREADS=1"),
        (
            "attention-fused",
            "oom-device",
            "strix-halo",
            "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1",
        ),
        (
            "allocator-expandable",
            "oom-fragmentation",
            "rx7900xtx",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ),
        (
            "allocator-no-split",
            "oom-fragmentation",
            "rx7900xtx",
            "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128",
        ),
        (
            "unset-variable",
            "oom-fragmentation",
            "rx7900xt-allocator",
            "PYTORCH_NO_HIP_MEMORY_CACHING",
        ),
        ("unset-variable", "hang-in-backward", "rx9070xt-windows", "HIP_LAUNCH_BLOCKING"),
    ],
)
def test_one_variable_is_changed(
    situations: Situations, remedy: str, kind: str, on: str, change: str
) -> None:
    """``change`` is NAME=VALUE, or NAME where it is unset."""
    name, sets, value = change.partition("=")

    assert applied(remedy, situations(kind, on)) == Strategy(
        variables={name: value if sets else None}
    )


@pytest.mark.parametrize(
    ("remedy", "kind", "change"),
    [
        ("attention-math", "hang-in-attention", Strategy(attention="math")),
        ("compile-off", "compile-failure", Strategy(compile=False)),
        ("precision-bf16", "nan-loss", Strategy(precision="bf16")),
        ("precision-fp32", "nan-loss", Strategy(precision="fp32")),
        ("loader-forkserver", "hang-in-loader", Strategy(worker_context="forkserver")),
        ("loader-spawn", "hang-in-loader", Strategy(worker_context="spawn")),
        ("loader-inline", "hang-in-loader", Strategy(workers=0)),
        ("loader-less-prefetch", "oom-host", Strategy(prefetch_factor=1)),
        ("loader-fewer-workers", "oom-host", Strategy(workers=2)),
        ("checkpoint-back", "checkpoint-corrupt", Strategy(checkpoints_back=1)),
        ("retry", "hang-in-loader", Strategy()),
        ("fresh-process", "oom-host", Strategy()),
    ],
)
def test_without_a_gpu_everything_that_is_not_for_gpus_works(
    situations: Situations, remedy: str, kind: str, change: Strategy
) -> None:
    situation = situations(kind, "no-amd-gpu", loader=situations.loader())

    assert applied(remedy, situation) == change


@pytest.mark.parametrize(
    "remedy",
    [
        "interrupts-off",
        "sdma-off",
        "hipblaslt-off",
        "miopen-fast-find",
        "attention-fused",
        "allocator-expandable",
        "allocator-no-split",
        "gfx-override-off",
        "p2p-off",
        "cpu",
    ],
)
@pytest.mark.parametrize("on", ["no-amd-gpu", "container-no-kfd", "driver-not-loaded"])
def test_without_a_gpu_nothing_that_only_a_gpu_obeys_is_tried(
    situations: Situations, remedy: str, on: str
) -> None:
    assert refused(remedy, situations("oom-fragmentation", on, ranks=2, gpus=0))


def test_a_harmful_variable_is_unset_without_a_gpu_too(situations: Situations) -> None:
    variables = {"PYTORCH_NO_HIP_MEMORY_CACHING": "1"}

    strategy = applied("unset-variable", situations("oom-device", variables=variables))

    assert strategy == Strategy(variables={"PYTORCH_NO_HIP_MEMORY_CACHING": None})


@pytest.mark.parametrize(
    ("remedy", "kind", "on", "why"),
    [
        ("hipblaslt-off", "gpu-reset", "rx7900xtx", "not the default on gfx1100"),
        ("hipblaslt-off", "gpu-reset", "mi300x-8", "ignore the variable"),
        ("hipblaslt-off", "gpu-reset", "rx9070xt", "ignore the variable"),
        ("hipblaslt-off", "gpu-reset", "old-kernel", "model is unknown"),
        (
            "hipblaslt-off",
            "gpu-reset",
            "rx9070xt-windows",
            "model is unknown",
        ),  # Windows names no gfx
        ("hipblaslt-off", "gpu-reset", "nvidia-card", "not built for ROCm"),
        ("interrupts-off", "hang-in-sync", "rx9070xt-windows", "ROCr"),
        ("interrupts-off", "hang-in-sync", "cpu-wheel", "not built for ROCm"),
        ("sdma-off", "hang-in-copy", "rx7900xtx", "APUs and before ROCm 6.1"),
        ("sdma-off", "hang-in-copy", "rx9070xt-windows", "ROCr"),
        ("allocator-expandable", "oom-fragmentation", "rx9070xt", "ignores it"),
        ("allocator-expandable", "oom-fragmentation", "rx9070xt-windows", "Windows"),
        ("allocator-no-split", "oom-fragmentation", "rx7900xt-allocator", "disables"),
        ("allocator-no-split", "oom-fragmentation", "mi210-8", "already sets"),
        ("gfx-override-off", "memory-access-fault", "rx7900xtx", "not set"),
        (
            "gfx-override-off",
            "memory-access-fault",
            "rx7900xt-pair",
            "the version of gfx1100 itself",
        ),
        ("gfx-override-off", "memory-access-fault", "rx5700xt-override", "no code for gfx1010"),
        ("gfx-override-off", "memory-access-fault", "override-refused", "not known"),
        ("attention-fused", "oom-device", "mi210-8", "only for gfx11 and gfx12"),
        ("attention-fused", "oom-device", "rx7900xt-pair", "before 2.7"),
        ("loader-forkserver", "hang-in-loader", "rx7900xtx", "hipMalloc"),
        ("loader-spawn", "hang-in-loader", "rx9070xt-windows", "always starts workers"),
        ("p2p-off", "hang-in-collective", "rx7900xtx", "one rank"),
        ("single-gpu", "hang-in-collective", "rx7900xtx", "one rank and one GPU"),
        ("omp-threads", "hang-in-loader", "no-amd-gpu", "runs on the CPU"),
        ("precision-fp32", "segfault", "rx7900xtx", "torch 2.8 for ROCm 6.3"),
        ("unset-variable", "oom-device", "rx7900xtx", "no variable that is known"),
        ("hipblaslt-off", "gpu-reset", "strix-halo", "not the default on gfx1151"),
        ("allocator-expandable", "oom-fragmentation", "r9700-pair", "RDNA4"),
        ("nhwc-off", "miopen-failure", "rx7900xtx", "ROCm 7.0 and 7.1"),
        ("miopen-off", "miopen-failure", "cpu-wheel", "not built for ROCm"),
        ("rocblas-alone", "hang-in-backward", "rx7900xtx", "gfx1200 and gfx1201"),
        ("allocator-off", "memory-access-fault", "rx7900xtx", "gfx1200 and gfx1201"),
        ("allocator-off", "memory-access-fault", "rx9070xt", "only since ROCm 7.2"),
        ("aotriton-off", "nan-loss", "mi355x", "not experimental"),
        ("nccl-simple", "hang-in-collective", "rx9070xt", "one rank"),
    ],
)
def test_a_machine_rules_a_remedy_out(
    situations: Situations, remedy: str, kind: str, on: str, why: str
) -> None:
    assert why in refused(remedy, situations(kind, on))


def test_segments_do_not_grow_in_wsl(situations: Situations) -> None:
    situation = situations("oom-fragmentation", "wsl2", gpus=1)

    assert "WSL" in refused("allocator-expandable", situation)


def test_on_gfx1100_with_torch_2_8_for_rocm_6_3_half_precision_goes_and_hipblaslt_stays(
    situations: Situations,
) -> None:
    plain = situations("segfault", "rx7900xtx")
    there = msgspec.structs.replace(
        plain, machine=with_torch(plain.machine, "2.8.0+rocm6.3", "6.3")
    )

    assert applied("precision-fp32", there) == Strategy(precision="fp32")
    assert "rocBLAS, crashes" in refused("hipblaslt-off", there)


@pytest.mark.parametrize(
    ("version", "rocm", "kernel", "works"),
    [
        ("2.12.0+rocm7.2", "7.2", "6.8.0-85-generic", True),
        ("2.11.0+rocm7.2", "7.2", "6.17.0", False),
        ("2.11.0+rocm7.2.0.git7e1940d4", "7.2.0", "6.17.0", True),
        ("2.12.0+rocm6.4", "6.4", "6.17.0", False),
        ("2.12.0+rocm7.14.0", "7.14.0", "6.12.100+deb13-amd64", False),
        ("2.12.0+rocm7.14.0", "7.14.0", "6.16.1", False),  # wrong results on this card
        ("2.14.0+rocm10.0.0", "10.0.0", "6.16.1", True),
        ("2.14.0+rocm10.0.0", "10.0.0", "6.12.100+deb13-amd64", False),
    ],
)
def test_segments_grow_only_where_the_build_has_it_and_the_driver_bears_it(
    situations: Situations, version: str, rocm: str, kernel: str, *, works: bool
) -> None:
    plain = situations("oom-fragmentation", "rx7900xtx")
    machine = with_kernel(with_torch(plain.machine, version, rocm), kernel)

    result = load_remedies()["allocator-expandable"].apply(
        msgspec.structs.replace(plain, machine=machine)
    )

    assert isinstance(result, Strategy) is works, result


def test_an_allocator_key_is_added_to_what_the_user_has_under_the_name_that_is_read(
    situations: Situations,
) -> None:
    variables = {"PYTORCH_HIP_ALLOC_CONF": "garbage_collection_threshold:0.8"}

    strategy = applied(
        "allocator-no-split", situations("oom-fragmentation", "rx7900xtx", variables=variables)
    )

    assert strategy.variables == {
        "PYTORCH_HIP_ALLOC_CONF": "garbage_collection_threshold:0.8,max_split_size_mb:128"
    }


def test_before_torch_2_9_the_allocator_is_set_by_its_older_name(situations: Situations) -> None:
    strategy = applied(
        "allocator-no-split", situations("oom-fragmentation", "rx7900xt-pair", variables={})
    )

    assert strategy.variables == {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}


def test_what_the_user_has_set_is_left_as_it_is(situations: Situations) -> None:
    own = situations("hang-in-sync", "strix-halo", variables={"HSA_ENABLE_INTERRUPT": "1"})
    there = situations("hang-in-sync", "strix-halo", variables={"HSA_ENABLE_INTERRUPT": "0"})

    assert refused("interrupts-off", own) == "you have set HSA_ENABLE_INTERRUPT=1"
    assert refused("interrupts-off", there) == "HSA_ENABLE_INTERRUPT=0 is already set"


def test_an_override_is_unset_where_torch_has_code_for_the_gpu_itself(
    situations: Situations,
) -> None:
    variables = {"HSA_OVERRIDE_GFX_VERSION_1": "10.3.0"}
    given = situations("memory-access-fault", "rx7900xtx", variables=variables)
    told = situations("memory-access-fault", "override-refused", arches=("gfx1100",))

    assert applied("gfx-override-off", given).variables == {"HSA_OVERRIDE_GFX_VERSION_1": None}
    assert applied("gfx-override-off", told).variables == {"HSA_OVERRIDE_GFX_VERSION": None}


def test_what_the_caller_knows_of_the_gpus_counts_more_than_the_driver(
    situations: Situations,
) -> None:
    situation = situations("gpu-reset", "strix-halo-after", gfx=("gfx1201",))

    assert applied("hipblaslt-off", situation).variables == {"TORCH_BLAS_PREFER_HIPBLASLT": "0"}


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"pickles": False}, "cannot be pickled"),
        ({"main_guarded": False}, "no guard"),
        ({"workers": 0}, "no workers"),
        ({"context": "spawn"}, "already start with spawn"),
    ],
)
def test_workers_start_clean_only_where_the_script_bears_it(
    situations: Situations, facts: dict[str, object], why: str
) -> None:
    loader = situations.loader(**facts)

    for remedy in ("loader-forkserver", "loader-spawn"):
        assert why in refused(remedy, situations("hang-in-loader", loader=loader))


def test_spawn_is_not_tried_after_a_fork_server(situations: Situations) -> None:
    fingerprint = Fingerprint(kind="hang-in-loader")
    tried = (FailedAttempt(strategy=Strategy(worker_context="forkserver"), failure=fingerprint),)

    assert "fork server" in refused("loader-spawn", situations("hang-in-loader", tried=tried))


@pytest.mark.parametrize(("workers", "left"), [(8, 4), (3, 1), (2, 1)])
def test_workers_are_halved(situations: Situations, workers: int, left: int) -> None:
    loader = situations.loader(workers=workers)

    assert applied("loader-fewer-workers", situations("oom-host", loader=loader)).workers == left


def test_workers_that_persist_are_made_anew_only_where_a_loader_was_seen_to_keep_them(
    situations: Situations,
) -> None:
    keeps = situations("oom-host", loader=situations.loader(persistent=True))
    done = msgspec.structs.replace(keeps, strategy=Strategy(persistent_workers=False))

    assert applied("loader-fresh-workers", keeps) == Strategy(persistent_workers=False)
    seen = "no DataLoader was seen to keep its workers between epochs"
    assert refused("loader-fresh-workers", done) == seen
    assert refused("loader-fresh-workers", situations("oom-host")) == seen
    ordinary = situations("oom-host", loader=situations.loader())
    assert refused("loader-fresh-workers", ordinary) == seen


@pytest.mark.parametrize("remedy", ["loader-less-prefetch", "loader-fresh-workers"])
def test_settings_of_workers_need_workers(situations: Situations, remedy: str) -> None:
    none = situations("oom-host", loader=situations.loader(workers=0, persistent=True))
    inline = situations("oom-host", strategy=Strategy(workers=0))

    assert {refused(remedy, none), refused(remedy, inline)} == {"there are no workers"}


def test_one_batch_ahead_is_the_least(situations: Situations) -> None:
    situation = situations("shm-too-small", strategy=Strategy(prefetch_factor=1))

    assert refused("loader-less-prefetch", situation) == "prefetch_factor=1 is already in effect"


@pytest.mark.parametrize("remedy", ["loader-less-prefetch", "loader-fresh-workers"])
def test_what_field_note_c_tried_against_a_hang_is_not_tried_against_one(remedy: str) -> None:
    assert "hang-in-loader" not in load_remedies()[remedy].answers


def test_the_last_worker_is_another_remedys_affair(situations: Situations) -> None:
    situation = situations("oom-host", loader=situations.loader(), strategy=Strategy(workers=1))

    assert "one worker" in refused("loader-fewer-workers", situation)
    assert applied("loader-inline", situation).workers == 0
    spawned = situations(
        "oom-host", loader=situations.loader(), strategy=Strategy(worker_context="spawn")
    )
    assert applied("loader-inline", spawned) == Strategy(workers=0)


def test_without_a_checkpoint_a_fresh_process_is_refused_and_it_is_said_why(
    situations: Situations,
) -> None:
    cannot = situations("oom-fragmentation", can_resume=False)
    none = situations("oom-fragmentation", checkpoints=0)

    assert "no way to resume" in refused("fresh-process", cannot)
    assert refused("fresh-process", none) == (
        "there is no checkpoint: every process would start at step 0"
    )


def test_the_only_checkpoint_is_not_passed_over(situations: Situations) -> None:
    assert "no older" in refused("checkpoint-back", situations("nan-loss", checkpoints=1))


def test_one_gpu_is_one_that_did_not_fail(situations: Situations) -> None:
    first = situations("memory-access-fault", "rx7900xt-pair", ranks=2, rank=0)
    second = situations("memory-access-fault", "rx7900xt-pair", ranks=2, rank=1)
    nobody = situations("hang-in-collective", "no-amd-gpu", ranks=2)

    assert applied("single-gpu", first).gpus == (1,)
    assert applied("single-gpu", second).gpus == (0,)
    assert applied("single-gpu", nobody).gpus == (0,)


def test_ranks_are_not_put_on_the_cpu(situations: Situations) -> None:
    assert "2 ranks" in refused("cpu", situations("gpu-hang", "rx7900xt-pair", ranks=2))


def test_on_the_cpu_nothing_for_gpus_is_tried_any_more(situations: Situations) -> None:
    situation = situations("hang-in-sync", "strix-halo", strategy=Strategy(device="cpu"))

    for remedy in ("interrupts-off", "cpu", "single-gpu", "hipblaslt-off"):
        assert "does not use GPUs" in refused(remedy, situation)


def test_fused_attention_is_not_asked_for_where_it_has_failed(situations: Situations) -> None:
    nan = FailedAttempt(strategy=Strategy(), failure=Fingerprint(kind="nan-loss"))

    math = situations("oom-device", "strix-halo", strategy=Strategy(attention="math"))
    before = situations("oom-device", "strix-halo", tried=(nan,))
    gfx1100 = situations("oom-device", "rx7900xtx")
    torch_2_9 = msgspec.structs.replace(
        gfx1100, machine=with_torch(gfx1100.machine, "2.9.1+rocm6.4", "6.4")
    )

    assert "already failed" in refused("attention-fused", math)
    assert "already failed" in refused("attention-fused", before)
    assert "NaN" in refused("attention-fused", torch_2_9)


def test_what_an_earlier_remedy_set_is_given_up_and_not_unset(situations: Situations) -> None:
    ours: dict[str, str | None] = {
        "PYTORCH_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"
    }
    situation = situations(
        "hang-in-allocator",
        "rx7900xtx",
        variables={"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"},
        strategy=Strategy(variables=ours),
    )

    assert applied("unset-variable", situation) == Strategy()


@pytest.mark.parametrize(
    ("batch", "part", "half"), [(32, 32, 16), (32, 8, 4), (7, 7, 3), (9, 2, 1)]
)
def test_a_part_is_halved_from_what_was_in_force(
    situations: Situations, batch: int, part: int, half: int
) -> None:
    for kind in ("oom-device", "oom-host"):
        situation = situations(kind, batch_split=BatchSplit(batch=batch, micro_batch=part))

        assert applied("half-micro-batch", situation) == Strategy(micro_batch=half)


def test_parts_are_only_for_scripts_that_have_them(situations: Situations) -> None:
    single = situations("oom-device", batch_split=BatchSplit(batch=32, micro_batch=1))

    assert refused("half-micro-batch", situations("oom-device")) == (
        "the script does not train through rocsteady_train.Loop"
    )
    assert "a single sample" in refused("half-micro-batch", single)


REMEDIES = [*load_remedies().values()]
ENTRY = """
[[remedy]]
id = "dummy"
title = "A dummy"
answers = ["oom-host"]
cost = "nothing"
evidence = "none"
when_not = "Never."
sources = ["field note A"]
"""


RETRY = ENTRY.replace("dummy", "retry")


def with_entries(folder: Path, text: str) -> DataFolder:
    (folder / "remedies.toml").write_text(f"{RETRY}{text}\n", encoding="utf-8")
    return DataFolder(folder)


def test_a_remedy_is_one_entry_of_one_file(tmp_path: Path) -> None:
    data = with_entries(tmp_path, f'{ENTRY}set = {{ DUMMY = "1" }}')

    assert load_remedies(data)["dummy"].set == {"DUMMY": "1"}
    assert data.ignored == []


def test_a_file_without_the_plain_retry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "remedies.toml").write_text(f'{ENTRY}set = {{ A = "1" }}\n', encoding="utf-8")

    with pytest.raises(KnowledgeError, match="retry: missing"):
        load_remedies(DataFolder(tmp_path))


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ("", "dummy: set: exactly one of"),
        ('set = { A = "1" }\nsetting = { compile = false }', "dummy: set: exactly one of"),
        ("setting = { compil = false }", "dummy: setting: 'compil' is not a field"),
        ('setting = { workers = "two" }', "dummy: setting: "),
        ('set = { A = "1" }\nneeds = "cuda"', "dummy: needs: one of gpu, rocm, rocr"),
        (
            'set = { A = "1" }\nwhen = [{ fact = "gpu.gfxx", is = "x", otherwise = "no" }]',
            "dummy: when.fact: 'gpu.gfxx' is not a fact",
        ),
        (
            'set = { A = "1" }\nwhen = [{ check = "gpu", otherwise = "no {gpu.gfxx}" }]',
            "dummy: when.otherwise: 'gpu.gfxx' is not a fact",
        ),
        ('set = { A = "1" }\nwhen = [{ check = "gpu" }]', "otherwise"),
        (f'set = {{ A = "1" }}{ENTRY}set = {{ A = "1" }}', "dummy: id: taken"),
    ],
)
def test_a_wrong_entry_is_ignored_and_named(tmp_path: Path, more: str, wrong: str) -> None:
    data = with_entries(tmp_path, f"{ENTRY}{more}")

    load_remedies(data)

    assert len(data.ignored) == 1
    assert wrong in data.ignored[0]


def test_the_same_again_comes_first_and_the_cpu_last() -> None:
    assert (REMEDIES[0].id, REMEDIES[-1].id) == ("retry", "cpu")


def test_every_function_has_an_entry() -> None:
    assert COMPUTED.keys() <= load_remedies().keys()


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: str(remedy.id))
def test_a_remedy_says_what_it_costs_what_it_rests_on_and_when_not_to_use_it(
    remedy: object,
) -> None:
    for field in ("title", "cost", "evidence", "when_not"):
        text = getattr(remedy, field)
        assert text.strip(), field
        assert text.isascii(), field
        assert not set(text) & set("\n!"), field
    assert all(source.strip() for source in getattr(remedy, "sources", ()))
    assert getattr(remedy, "sources", ())


def test_a_remedy_answers_only_kinds_that_exist() -> None:
    kinds = {ANY, *load_failures().kinds}

    unknown = {
        (remedy.id, kind) for remedy in REMEDIES for kind in remedy.answers if kind not in kinds
    }

    assert unknown == set()


def test_nothing_claims_to_be_confirmed_on_hardware() -> None:
    assert [remedy.id for remedy in REMEDIES if remedy.confirmed_on] == []


def test_one_after_the_other(recorded: Recorded) -> None:
    machine = recorded.machine("r9700-pair")

    strategy = requested_strategy(
        ("hipblaslt-off", "loader-inline", "precision-bf16", "cpu"), machine, {}, gpus=1
    )

    assert strategy == Strategy(
        workers=0, precision="bf16", device="cpu", variables={"TORCH_BLAS_PREFER_HIPBLASLT": "0"}
    )


def test_a_harmful_variable_is_unset_without_a_failure_that_it_brought_about(
    recorded: Recorded,
) -> None:
    strategy = requested_strategy(
        ("unset-variable",), recorded.machine("no-amd-gpu"), {"AMD_SERIALIZE_KERNEL": "3"}, gpus=0
    )

    assert strategy == Strategy(variables={"AMD_SERIALIZE_KERNEL": None})


def test_what_is_not_right_here_is_refused_by_name(recorded: Recorded) -> None:
    machine = recorded.machine("no-amd-gpu")

    assert requested_strategy(("loader-inline", "sdma-off"), machine, {}, gpus=0) == Refused(
        why="sdma-off: torch 2.9.0+cpu is not built for ROCm"
    )
    asked = requested_strategy(("cpu",), machine, {}, gpus=0)  # what is so already is no error
    assert asked == Strategy(device="cpu")
    assert isinstance(requested_strategy(("retry",), machine, {}, gpus=0), Refused)
