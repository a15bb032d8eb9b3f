"""The rules of the ladder, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.knowledge.failures import Nature, load_failures
from rocsteady.doctor.knowledge.values import Fix
from rocsteady.failures.ladder import choose_remedy
from rocsteady.failures.situation import Budget, Situation
from rocsteady.model import BatchSplit, Decision, FailedAttempt, Next, Strategy

if TYPE_CHECKING:
    from tests.failures.remedies.conftest import Situations

PRECISION = ("precision-bf16", "precision-fp32")  # only if somebody asks for it


def test_a_first_hang_may_be_chance_the_second_is_answered(situations: Situations) -> None:
    first = situations("hang-in-loader", loader=situations.loader(main_guarded=False))

    again = choose_remedy(first)
    second = situations.after(first, again, steps=250)
    remedy = choose_remedy(second)

    assert (again.remedy, again.strategy) == ("retry", Strategy())
    assert (remedy.remedy, remedy.reverted) == ("loader-inline", "")
    assert remedy.strategy == Strategy(workers=0)
    assert dict(remedy.skipped)["loader-spawn"].startswith("the main module has no guard")


def test_cheapest_first_and_what_did_not_move_it_is_taken_back(situations: Situations) -> None:
    situation = situations("nan-loss", also=PRECISION, nature=Nature.DETERMINISTIC)

    choices = situations.preview(situation)

    assert [(choice.reverted, choice.remedy) for choice in choices] == [
        ("", "precision-bf16"),
        ("precision-bf16", "attention-math"),
        ("attention-math", "checkpoint-back"),
        ("checkpoint-back", "precision-fp32"),
        ("precision-fp32", ""),
    ]
    assert [choice.ends for choice in choices] == [False] * 4 + [True]
    assert [choice.strategy for choice in choices[:-1]] == [
        Strategy(precision="bf16"),
        Strategy(attention="math"),
        Strategy(checkpoints_back=1),
        Strategy(precision="fp32"),
    ]


def test_what_brought_the_run_further_is_kept_under_the_next(situations: Situations) -> None:
    situation = situations("nan-loss", also=PRECISION, nature=Nature.DETERMINISTIC)

    further = situations.after(situation, choose_remedy(situation), steps=300)

    assert choose_remedy(further).strategy == Strategy(precision="bf16", attention="math")
    assert choose_remedy(further).reverted == ""


def test_another_failure_as_far_on_means_that_the_first_is_mended(situations: Situations) -> None:
    situation = situations("compile-failure", nature=Nature.DETERMINISTIC)

    other = situations.after(
        situation, choose_remedy(situation), "hang-in-attention", nature=Nature.EITHER
    )

    again, remedy = (
        choose_remedy(other),
        choose_remedy(situations.after(other, choose_remedy(other))),
    )
    assert (again.remedy, again.strategy) == ("retry", Strategy(compile=False))
    assert remedy.strategy == Strategy(compile=False, attention="math")


def test_a_remedy_that_makes_it_fail_earlier_is_taken_back_and_its_failure_answered_otherwise(
    situations: Situations,
) -> None:
    situation = situations("hang-in-backward", "strix-halo", nature=Nature.DETERMINISTIC)
    first = choose_remedy(situation)
    second = situations.after(situation, first)
    math = choose_remedy(second)
    worse = situations.after(second, math, "oom-device", steps=10)

    choice = choose_remedy(worse)

    assert (first.remedy, math.remedy) == ("interrupts-off", "attention-math")
    assert (choice.remedy, choice.strategy) == ("cpu", Strategy(device="cpu"))
    assert choice.reverted == "attention-math"


def test_what_may_be_chance_is_not_blamed_on_a_remedy(situations: Situations) -> None:
    situation = situations("hang-in-backward", "strix-halo", nature=Nature.DETERMINISTIC)
    choice = choose_remedy(situation)
    stumbled = situations.after(
        situation, choice, "network-error", steps=0, nature=Nature.TRANSIENT
    )

    again = choose_remedy(stumbled)

    assert (again.remedy, again.strategy) == ("retry", choice.strategy)


def test_an_error_that_a_remedy_brought_about_ends_the_remedy_and_not_the_run(
    situations: Situations,
) -> None:
    situation = situations("gpu-hang", "strix-halo", nature=Nature.DETERMINISTIC)
    broken = situations.after(situation, choose_remedy(situation), "no-gpu-visible", steps=0)
    person = msgspec.structs.replace(broken, person=Fix(text="Look at the driver."))

    end = choose_remedy(person)

    assert (end.ends, end.reverted, end.needs_person) == (True, "cpu", False)
    assert end.exhausted


def test_the_same_step_twice_is_no_chance(situations: Situations) -> None:
    situation = situations("network-error", nature=Nature.TRANSIENT)

    choice = choose_remedy(situations.after(situation, choose_remedy(situation)))

    assert choice.ends


def test_a_transient_failure_is_tried_again_after_each_progress(situations: Situations) -> None:
    situation = situations("network-error", nature=Nature.TRANSIENT)

    for steps in (200, 300, 400):
        choice = choose_remedy(situation)
        assert (choice.remedy, choice.strategy) == ("retry", Strategy())
        situation = situations.after(situation, choice, steps=steps)


def test_what_fails_before_its_first_step_is_not_tried_again_unchanged(
    situations: Situations,
) -> None:
    def at_the_start(kind: str) -> Situation:
        situation = situations(kind)
        tried = FailedAttempt(strategy=Strategy(), failure=situation.failure.fingerprint)
        return msgspec.structs.replace(situation, tried=(tried,))

    assert choose_remedy(at_the_start("segfault")).ends
    assert choose_remedy(at_the_start("hang-at-import")).remedy == "retry"


def test_an_unknown_failure_is_tried_again_only_after_progress(situations: Situations) -> None:
    situation = situations("unknown")

    again = choose_remedy(situation)

    assert again.remedy == "retry"
    assert choose_remedy(situations.after(situation, again)).ends
    assert choose_remedy(situations.after(situation, again, steps=150)).remedy == "retry"


def test_fragmented_memory_is_left_behind_as_long_as_that_brings_it_further(
    situations: Situations,
) -> None:
    situation = situations("oom-fragmentation", nature=Nature.DETERMINISTIC)

    for steps in (140, 180, 220):
        choice = choose_remedy(situation)
        assert (choice.remedy, choice.strategy) == ("fresh-process", Strategy())
        situation = situations.after(situation, choice, steps=steps)
    stuck = situations.after(situation, choose_remedy(situation), steps=220)

    assert choose_remedy(stuck).ends


def test_a_hang_that_nothing_mends_is_survived_as_long_as_it_comes_further(
    situations: Situations,
) -> None:
    situation = situations("hang-in-loader", loader=situations.loader(workers=0))
    for steps in (200, 300, 400):
        choice = choose_remedy(situation)
        assert (choice.remedy, choice.strategy) == ("retry", Strategy())
        situation = situations.after(situation, choice, steps=steps)

    again = choose_remedy(situation)
    assert again.remedy == "retry"
    assert choose_remedy(situations.after(situation, again, steps=400)).ends


def test_two_more_tries_follow_progress_and_no_third(situations: Situations) -> None:
    situation = situations("hang-in-loader", loader=situations.loader(workers=0))
    situation = situations.after(situation, choose_remedy(situation), steps=400)
    again = choose_remedy(situation)
    for steps in (370, 360):
        situation = situations.after(situation, again, steps=steps)
        again = choose_remedy(situation)
        assert (again.remedy, again.strategy) == ("retry", Strategy())

    assert choose_remedy(situations.after(situation, again, steps=350)).ends


def test_a_person_is_asked_at_once(situations: Situations) -> None:
    fix = Fix(text="Free some space.", commands=("df -h .",))

    end = choose_remedy(situations("disk-full", person=fix))

    assert (end.ends, end.needs_person) == (True, True)


def test_the_users_own_bug_ends_at_once(situations: Situations) -> None:
    end = choose_remedy(situations("script-error"))

    assert (end.ends, end.remedy, end.skipped) == (True, "", ())


def test_settings_that_took_the_machine_down_are_not_tried_again(situations: Situations) -> None:
    here = situations("machine-went-down", "rx9060xt")
    before = msgspec.structs.replace(
        here, crashed_machine=(Strategy(variables={"TORCH_BLAS_PREFER_HIPBLASLT": "0"}),)
    )

    assert situations.would_try(here) == ["hipblaslt-off", "cpu"]
    assert situations.would_try(before) == ["cpu"]
    assert dict(choose_remedy(before).skipped)["hipblaslt-off"] == (
        "the machine went down with these settings"
    )


def test_full_memory_that_took_the_machine_down_is_capped_first(situations: Situations) -> None:
    here = situations("machine-went-down", "rx9060xt", memory_full=True)
    denied = situations("machine-went-down", "rx9060xt", deny=("memory-cap",), memory_full=True)
    other = situations("machine-went-down", "rx7900xtx", memory_full=True)
    old = situations("machine-went-down", "rx9070xt", memory_full=True)  # torch 2.9
    unseen = situations("machine-went-down", "rx9060xt")

    assert situations.would_try(here) == ["memory-cap", "hipblaslt-off", "cpu"]
    assert choose_remedy(here).strategy.variables == {
        "PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.9"
    }
    assert situations.would_try(denied) == ["hipblaslt-off", "cpu"]
    for each in (other, old, unseen):
        assert "memory-cap" not in situations.would_try(each)


def test_what_was_tried_again_after_it_took_the_machine_down_is_judged_by_that(
    situations: Situations,
) -> None:
    down = situations("machine-went-down")
    again = Decision(next=Next.AGAIN, strategy=Strategy(), remedy="", why="asked for with --again")

    stumbled = situations.after(down, again, "network-error", steps=50, nature=Nature.TRANSIENT)

    assert choose_remedy(down).ends
    assert choose_remedy(stumbled).strategy == Strategy()


def test_a_remedy_that_helped_before_comes_first(situations: Situations) -> None:
    situation = situations("hang-in-loader", helped_before=("loader-inline",))

    assert choose_remedy(situation).remedy == "loader-inline"


def test_only_what_is_allowed_and_nothing_that_is_denied(situations: Situations) -> None:
    allowed = situations("nan-loss", allow=("attention-math", "precision-fp32"))
    denied = situations("nan-loss", deny=("retry", "precision-bf16", "precision-fp32"))

    assert situations.would_try(allowed) == ["attention-math", "precision-fp32"]
    assert situations.would_try(denied) == ["attention-math", "checkpoint-back"]
    assert dict(choose_remedy(denied).skipped)["precision-bf16"] == "denied by --deny"


def test_what_changes_numbers_is_used_only_if_it_is_named(situations: Situations) -> None:
    nan = situations("nan-loss", nature=Nature.DETERMINISTIC)
    two = situations("gpu-hang", "rx7900xt-pair", ranks=2)
    one = situations("gpu-hang", "rx7900xt-pair")  # of one rank the batch stays as it is

    assert situations.would_try(nan) == ["attention-math", "checkpoint-back"]
    assert "precision-bf16" in situations.preview(nan)[-1].why
    assert "single-gpu" not in situations.would_try(two)
    assert "single-gpu" in situations.preview(two)[-1].why
    assert "single-gpu" in situations.would_try(one)
    assert "single-gpu" in situations.would_try(msgspec.structs.replace(two, also=("single-gpu",)))
    assert "p2p-off" not in situations.would_try(
        situations(
            "hang-in-collective", "mi300x-8", ranks=2, allow=("retry",), also=("single-gpu",)
        )
    )


def test_a_setting_with_nothing_to_act_on_is_passed_over_and_undone(situations: Situations) -> None:
    situation = situations("nan-loss", also=PRECISION, nature=Nature.DETERMINISTIC)
    further = situations.after(situation, choose_remedy(situation), steps=300)
    idle = msgspec.structs.replace(further, ineffective=("precision",))

    choice = choose_remedy(idle)

    assert (choice.remedy, choice.reverted) == ("attention-math", "precision-bf16")
    assert choice.strategy == Strategy(attention="math")
    assert dict(choose_remedy(idle).skipped)["precision-bf16"] == (
        "precision has no effect on this script"
    )


def test_harmful_variables_are_unset_one_at_a_time(situations: Situations) -> None:
    variables = {"AMD_SERIALIZE_KERNEL": "3", "HIP_LAUNCH_BLOCKING": "1", "HSA_XNACK": "1"}
    situation = situations("hang-in-sync", variables=variables, nature=Nature.DETERMINISTIC)

    choices = situations.preview(situation)

    assert [choice.strategy for choice in choices if choice.remedy == "unset-variable"] == [
        Strategy(variables={"AMD_SERIALIZE_KERNEL": None}),
        Strategy(variables={"HIP_LAUNCH_BLOCKING": None}),
    ]


def test_a_checkpoint_passed_over_is_not_passed_over_again_after_progress(
    situations: Situations,
) -> None:
    situation = situations("checkpoint-corrupt", nature=Nature.DETERMINISTIC)
    choice = choose_remedy(situation)

    further = situations.after(
        situation, choice, "network-error", steps=300, nature=Nature.TRANSIENT
    )

    assert choice.strategy == Strategy(checkpoints_back=1)
    assert choose_remedy(further).strategy == Strategy()


def test_budgets_end_it(situations: Situations) -> None:
    situation = situations("nan-loss", also=PRECISION, nature=Nature.DETERMINISTIC)

    def tried(budget: Budget) -> int:
        return len(situations.preview(msgspec.structs.replace(situation, budget=budget))) - 1

    assert tried(Budget(tries=2)) == 2
    assert tried(Budget(without_progress=3)) == 3


def test_progress_refills_the_budget(situations: Situations) -> None:
    situation = situations(
        "nan-loss", also=PRECISION, nature=Nature.DETERMINISTIC, budget=Budget(tries=1)
    )

    further = situations.after(situation, choose_remedy(situation), steps=200)

    assert choose_remedy(further).remedy == "attention-math"
    assert choose_remedy(situations.after(situation, choose_remedy(situation))).ends


def test_parts_get_smaller_until_they_fit_or_are_single_samples(situations: Situations) -> None:
    """What was in force is told by each attempt; a half that failed is taken back first."""
    part, parts = 16, []
    situation = situations(
        "oom-device",
        nature=Nature.DETERMINISTIC,
        batch_split=BatchSplit(batch=16, micro_batch=part),
    )
    while (choice := choose_remedy(situation)).remedy == "half-micro-batch":
        assert not choice.ends
        part = choice.strategy.micro_batch or 0
        parts.append(part)
        situation = msgspec.structs.replace(
            situations.after(situation, choice), batch_split=BatchSplit(batch=16, micro_batch=part)
        )

    assert parts == [8, 4, 2, 1]


def test_a_part_that_brought_the_run_further_is_kept(situations: Situations) -> None:
    situation = situations(
        "oom-device", nature=Nature.DETERMINISTIC, batch_split=BatchSplit(batch=16, micro_batch=16)
    )
    choice = choose_remedy(situation)

    further = situations.after(situation, choice, "hang-in-loader", steps=200, nature=Nature.EITHER)

    following = choose_remedy(further)
    assert choice.strategy == Strategy(micro_batch=8)
    assert not following.ends
    assert following.strategy.micro_batch == 8


CACHING = "PYTORCH_NO_HIP_MEMORY_CACHING"
WORKSPACE = "HIPBLASLT_WORKSPACE_SIZE"
KINDS = load_failures().kinds


GETS_THERE = {  # what fails, what is given, the settings with which it does not, and the way there
    "a DataLoader that hangs with workers": (
        "hang-in-loader", {}, ("workers", 0), "retry loader-forkserver loader-inline"),
    "attention that hangs when fused": (
        "hang-in-attention", {}, ("attention", "math"), "retry attention-math"),
    "its backward, of which no more is known": (
        "hang-in-backward", {}, ("attention", "math"), "retry attention-math"),
    "HIPBLAS_STATUS_ALLOC_FAILED while a variable is set": (
        "blas-handle-failed", {"variables": {WORKSPACE: "8388608"}},
        ("variables", {WORKSPACE: None}), "retry unset-variable"),
    "a variable that cancels the allocator settings": (
        "oom-fragmentation",
        {"variables": {CACHING: "1", "PYTORCH_HIP_ALLOC_CONF": "max_split_size_mb:32"}},
        ("variables", {CACHING: None}), "retry unset-variable"),
    "too many workers for the host's memory": (
        "oom-host", {}, ("workers", 2), "retry loader-less-prefetch loader-fewer-workers"),
    "a compile that dies": ("compile-failure", {}, ("compile", False), "compile-off"),
    "NaN under fp16": (
        "nan-loss", {"also": PRECISION}, ("precision", "bf16"), "retry precision-bf16"),
    "a GPU that fails only with two ranks": (
        "gpu-hang",
        {"ranks": 2, "rank": 1, "also": ("single-gpu",)},
        ("gpus", (0,)), "retry single-gpu"),
    "the last checkpoint cannot be read": (
        "checkpoint-corrupt", {}, ("checkpoints_back", 1), "checkpoint-back"),
}  # fmt: skip


@pytest.mark.parametrize("case", GETS_THERE)
def test_without_a_gpu_it_gets_there(situations: Situations, case: str) -> None:
    kind, given, (setting, value), path = GETS_THERE[case]
    nature = KINDS[kind].nature

    situation = situations(kind, nature=nature, loader=situations.loader(), **given)  # type: ignore[arg-type]
    taken = []
    while getattr(situation.strategy, setting) != value:
        choice = choose_remedy(situation)
        taken.append(choice.remedy)
        situation = situations.after(situation, choice)

    assert " ".join(taken) == path


@pytest.mark.parametrize(
    ("kind", "on", "path"),
    [
        ("hang-in-backward", "rx9070xt-windows", "retry unset-variable attention-math cpu"),
        ("blas-handle-failed", "rx7900xt-pair", "retry single-gpu cpu"),
        ("hang-in-loader", "rx5700xt-override", "retry loader-spawn loader-inline omp-threads"),
        ("oom-fragmentation", "rx7900xt-allocator", "retry unset-variable cpu"),
        ("machine-went-down", "rx5700xt-override", "cpu"),
    ],
    ids=["note A", "note B", "note C", "note D", "note E"],
)
def test_the_field_notes_to_the_end_of_the_ladder(
    situations: Situations, kind: str, on: str, path: str
) -> None:
    situation = situations(kind, on, nature=KINDS[kind].nature)
    taken = []
    while not (choice := choose_remedy(situation)).ends:
        taken.append(choice.remedy)
        situation = situations.after(situation, choice)

    assert " ".join(taken) == path


@pytest.mark.parametrize(
    ("kind", "path"),
    [("segfault", ["retry"]), ("script-error", []), ("disk-full", []), ("machine-went-down", [])],
)
def test_what_nothing_mends_ends_soon_and_says_what_was_tried(
    situations: Situations, kind: str, path: list[str]
) -> None:
    about = KINDS[kind]
    situation = situations(kind, nature=about.nature, person=about.fix)
    taken = []
    while not (choice := choose_remedy(situation)).ends:
        taken.append(choice.remedy)
        situation = situations.after(situation, choice)

    assert taken == path
    assert all(name in choice.why for name in path)
    assert choice.needs_person == (about.fix is not None)
