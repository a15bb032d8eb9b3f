"""Every rule has a machine on which it fires and one on which it was checked and does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocsteady.doctor.condition_match import Matcher
from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.facts import facts_of

if TYPE_CHECKING:
    from tests.conftest import Recorded

RULES = list(doctors_knowledge().rules)


@pytest.mark.parametrize("rule", RULES)
def test_its_example_or_a_recorded_machine_has_it(recorded: Recorded, rule: str) -> None:
    known = recorded.knowledge.rules[rule]
    if known.example:
        match = Matcher(facts_of(known.example), {}, recorded.knowledge.arches).match(known.when)
        assert match.holds, f"{rule} does not hold on its own example; missing: {match.missing}"
    else:
        assert [name for name in recorded.names if rule in fired(recorded, name)], (
            f"no recorded machine on which {rule} fires; give it an example"
        )


@pytest.mark.parametrize("rule", RULES)
def test_a_recorded_machine_was_checked_and_does_not_have_it(recorded: Recorded, rule: str) -> None:
    assert [
        name
        for name in recorded.names
        if rule not in fired(recorded, name) and rule not in unchecked(recorded, name)
    ], f"no recorded machine on which {rule} is checked and does not fire"


def test_a_rule_is_fired_unchecked_or_neither_and_the_count_agrees(
    recorded: Recorded, every_machine: str
) -> None:
    fires, open_rules = fired(recorded, every_machine), unchecked(recorded, every_machine)

    assert not fires & open_rules
    assert recorded.diagnosis(every_machine).rules_checked == len(RULES) - len(open_rules)


def test_every_placeholder_is_filled(recorded: Recorded, every_machine: str) -> None:
    for finding in recorded.diagnosis(every_machine).findings:
        told = " ".join((finding.summary, *finding.fix.commands))
        assert "{" not in told.replace("${", ""), finding.rule
        assert ": ." not in told, finding.rule
        assert "  " not in finding.summary, finding.rule
        assert not finding.summary.startswith((":", ",", " ")), finding.rule


def test_a_wheel_that_brings_the_bridge_of_wsl_is_not_blocked(recorded: Recorded) -> None:
    rule = recorded.knowledge.rules["wsl-bridge-missing"]

    def blocks(rocm: str) -> bool | None:
        wsl = {"wsl": True, "wsl.dxg": True, "wsl.librocdxg": False}
        facts = facts_of({**wsl, "torch.rocm": rocm})
        return Matcher(facts, {}, recorded.knowledge.arches).match(rule.when).holds

    assert {rocm: blocks(rocm) for rocm in ("7.2.1", "10.1.0")} == {"7.2.1": True, "10.1.0": False}


def fired(recorded: Recorded, name: str) -> set[str]:
    return {finding.rule for finding in recorded.diagnosis(name).findings}


def unchecked(recorded: Recorded, name: str) -> set[str]:
    return {rule for entry in recorded.diagnosis(name).unchecked for rule in entry.rules}


def test_a_gpu_that_no_wheel_serves_is_sent_to_none(recorded: Recorded) -> None:
    for name in ("steam-deck", "radeon-vii", "vega-apu-plain"):
        fixes = [it.fix.commands for it in recorded.diagnosis(name).findings]
        assert "device-gfx" not in str(fixes)
        assert {"gfx1033-wrong-gradients", "vega-last-wheel", "no-torch-for-gpu"} & fired(
            recorded, name
        )


def test_two_cards_of_which_one_is_another_are_no_pair(recorded: Recorded) -> None:
    assert "gfx1100-pair-wrong-data" not in fired(recorded, "rx7900xtx-rx6700xt")
    assert "gfx1100-pair-wrong-data" in fired(recorded, "rx7900xt-pair-current")
