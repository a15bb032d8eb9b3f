"""Counts of the same probe without and with a setting, and what may be said of them."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from rocsteady.model import Observation, ProbeOutcome
from rocsteady.probes.comparison import VariableSetting, compare, counted, read_setting
from rocsteady.report.probe import Comparison, conclusion, difference

OFF = read_setting("HSA_ENABLE_INTERRUPT=0")
PROBE = ("attention-backward", "flash")


def seen(*, bad: bool, said: Mapping[str, str] | None = None) -> Observation:
    return Observation(
        probe=PROBE[0],
        variant=PROBE[1],
        outcome=ProbeOutcome.HANG if bad else ProbeOutcome.OK,
        tries=0 if bad else 20,
        seconds=10.0 if bad else 2.0,
        said=dict(said or {}),
    )


def some(wrong: int, runs: int) -> list[Observation]:
    return [seen(bad=number < wrong) for number in range(runs)]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [("A=1", "A", "1"), ("A=", "A", ""), ("-A", "A", None), ("A=b=c", "A", "b=c")],
)
def test_a_setting_is_a_value_an_empty_one_or_none(text: str, name: str, value: str | None) -> None:
    assert read_setting(text) == VariableSetting(spelt=text, name=name, value=value)


@pytest.mark.parametrize("text", ["A", "", "=1", "-A=1", "1A=2", "--", "A B=1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAME=VALUE"):
        read_setting(text)


def test_what_the_field_notes_counted_by_hand_is_found() -> None:
    result = counted(PROBE, 16, {"": some(4, 6), OFF.spelt: some(0, 16)}, {})

    without, arm = result.arms
    assert arm.differs
    assert difference(without, arm).startswith(
        "failures: 4 of 6 without, 0 of 16 with HSA_ENABLE_INTERRUPT=0: a significant difference"
    )
    assert (round(without.lowest, 2), round(arm.highest, 2)) == (0.22, 0.17)
    assert conclusion((), [result]) == [
        "Attention backward flash fails less often with HSA_ENABLE_INTERRUPT=0."
    ]


def test_a_small_difference_may_be_chance() -> None:
    result = counted(PROBE, 6, {"": some(2, 6), OFF.spelt: some(0, 6)}, {})

    assert not result.arms[1].differs
    assert difference(*result.arms).startswith(
        "failures: 2 of 6 without, 0 of 6 with HSA_ENABLE_INTERRUPT=0: no significant difference"
    )
    assert conclusion((), [result]) == [
        "No setting made a significant difference to attention-backward flash."
    ]


def test_where_nothing_goes_wrong_there_is_nothing_to_tell_apart() -> None:
    result = counted(PROBE, 8, {"": some(0, 8), OFF.spelt: some(0, 8)}, {})

    assert difference(*result.arms) == (
        "failures: 0 of 8 without, 0 of 8 with HSA_ENABLE_INTERRUPT=0: no failures, so no"
        " difference can be shown; median tries per second: 10 without, 10 with"
    )


def test_each_has_its_turn_and_another_one_comes_first_each_time() -> None:
    turns: list[str] = []
    two = read_setting("B=2")

    def turn(setting: VariableSetting | None) -> Observation:
        turns.append(setting.spelt if setting else "-")
        name = {setting.name: setting.value or ""} if setting else {}
        return seen(bad=False, said=name)

    result = compare(PROBE, [OFF, two], 3, turn, {})

    assert turns == ["-", OFF.spelt, "B=2", OFF.spelt, "B=2", "-", "B=2", "-", OFF.spelt]
    assert [(arm.setting, arm.runs) for arm in result.arms] == [("", 3), (OFF.spelt, 3), ("B=2", 3)]


def test_a_variable_that_is_not_in_force_makes_it_void() -> None:
    def turn(setting: VariableSetting | None) -> Observation:
        return seen(bad=setting is None, said={setting.name: "1"} if setting else {})

    result = compare(PROBE, [OFF], 8, turn, {})

    without, arm = result.arms
    assert (arm.runs, arm.p, arm.differs) == (1, None, False)
    assert difference(without, arm) == (
        "HSA_ENABLE_INTERRUPT=0: void, HSA_ENABLE_INTERRUPT was '1' in the process"
    )


def test_what_is_so_already_is_not_compared() -> None:
    def turn(setting: VariableSetting | None) -> Observation:
        raise AssertionError(setting)

    result = compare(PROBE, [OFF], 8, turn, {OFF.name: "0"})

    assert result.arms[1].void == "it is already set this way"
    assert compare(PROBE, [read_setting("-A")], 8, turn, {}).arms[1].void


def test_a_process_that_died_could_not_tell_and_still_counts() -> None:
    def turn(setting: VariableSetting | None) -> Observation:
        return seen(bad=setting is not None)

    result = compare(PROBE, [OFF], 8, turn, {})

    assert (result.arms[1].wrong, result.arms[1].void, result.arms[1].differs) == (8, "", True)


def test_with_many_settings_chance_still_seldom_looks_like_a_difference() -> None:
    draws = random.Random(3)  # noqa: S311 - a simulation

    def drawn() -> list[Observation]:
        return [seen(bad=draws.random() < 0.4) for _ in range(16)]

    def alarms(result: Comparison) -> bool:
        return any(arm.differs for arm in result.arms)

    results = [
        counted(PROBE, 16, {"": drawn(), **{f"S{n}=1": drawn() for n in range(5)}}, {})
        for _ in range(300)
    ]

    assert sum(map(alarms, results)) <= 15  # 5 %
