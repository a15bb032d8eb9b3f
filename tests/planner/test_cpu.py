"""The CPU as well as it can be made."""

from __future__ import annotations

import pytest
from builders import failed, tried

from rocsteady.model import Strategy
from rocsteady.planner.cpu import FLUSHED_TOLD, KEEP_FREED, THREADS, settings, tune
from rocsteady.planner.trial_result import TrialResult


def test_what_is_faster_is_kept_and_what_is_not_is_told() -> None:
    made: list[Strategy] = []

    def attempt(strategy: Strategy) -> TrialResult | None:
        made.append(strategy)
        faster = 3.0 if strategy.compile else 2.0
        return tried(faster if strategy.variables.get(THREADS) != "1" else 0.5, strategy)

    (tuned,) = tune(Strategy(), tried(2.0), 2, attempt)

    assert tuned.strategy == Strategy(compile=True, flush_denormal=True)
    assert tuned.names == ("compiled",)
    assert "1 thread: 0.17 times" in tuned.lines
    assert tuned.lines[-2:] == ("bf16 (autocast): 1.00 times", FLUSHED_TOLD)
    assert Strategy() in made  # the first again, after the last


def test_what_changes_the_numbers_is_a_result_of_its_own_that_says_so() -> None:
    def attempt(strategy: Strategy) -> TrialResult | None:
        return tried(4.0 if strategy.autocast else 2.0, strategy)

    same, other = tune(Strategy(), tried(2.0), 2, attempt)

    assert (same.strategy, same.changes) == (Strategy(), "")
    assert other.strategy == Strategy(autocast="bf16", flush_denormal=True)
    assert "bf16" in other.changes


def test_a_gain_that_the_first_has_too_when_tried_again_is_none() -> None:
    (tuned,) = tune(Strategy(), tried(2.0), 2, lambda strategy: tried(2.5, strategy))

    assert tuned.strategy == Strategy()
    assert tuned.tried.pace is not None
    assert tuned.tried.pace.rate == 2.5
    assert FLUSHED_TOLD not in tuned.lines


@pytest.mark.parametrize(("first", "names"), [(1.6, ("freed memory kept",)), (2.0, ()), (1.1, ())])
def test_a_gain_must_exceed_what_two_unchanged_trials_differ_by(
    first: float, names: tuple[str, ...]
) -> None:
    def attempt(strategy: Strategy) -> TrialResult | None:
        return tried(1.8 if strategy.variables.keys() >= KEEP_FREED.keys() else 1.5, strategy)

    (tuned,) = tune(Strategy(), tried(first), 2, attempt)

    assert tuned.names == names


def test_a_setting_that_fails_or_finds_nothing_to_act_on_is_not_taken() -> None:
    def attempt(strategy: Strategy) -> TrialResult | None:
        if strategy.compile:
            return tried(9.0, strategy, idle=("compile",))
        return failed("segfault", strategy)

    (tuned,) = tune(Strategy(), tried(2.0), 4, attempt)

    assert tuned.strategy == Strategy()
    assert {"compiled: no effect on this script", "1 thread: failed, segfault"} <= set(tuned.lines)


def test_a_processor_that_cannot_take_subnormals_as_0_is_made_faster_all_the_same() -> None:
    (tuned,) = tune(
        Strategy(),
        tried(2.0),
        1,
        lambda strategy: tried(
            3.0 if strategy.compile else 2.0, strategy, idle=("flush_denormal",)
        ),
    )

    assert (tuned.names, tuned.lines[1]) == (("compiled",), "compiled: 1.50 times")
    assert FLUSHED_TOLD not in tuned.lines


def test_it_ends_when_time_is_up() -> None:
    (tuned,) = tune(Strategy(), tried(2.0), 2, lambda _: None)

    assert (tuned.strategy, tuned.lines) == (Strategy(), ())


def test_one_core_has_no_threads_to_settle() -> None:
    assert [name for name, _ in settings(Strategy(), 1)] == ["freed memory kept", "compiled"]


def test_every_setting_leaves_the_others_as_they_are() -> None:
    base = Strategy(device="cpu", variables={"A": "b"})

    for _, strategy in settings(base, 2):
        assert strategy.device == "cpu"
        assert strategy.variables["A"] == "b"
