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


def holds(recorded: Recorded, rule: str, **other: object) -> bool | None:
    """Return whether a rule holds on its example with some facts changed; __ stands for a dot."""
    known = recorded.knowledge.rules[rule]
    changed = {name.replace("__", "."): value for name, value in other.items()}
    facts = facts_of({**known.example, **changed})  # type: ignore[dict-item]
    return Matcher(facts, {}, recorded.knowledge.arches).match(known.when).holds


def test_a_build_that_is_bad_is_named_and_its_neighbours_are_not(recorded: Recorded) -> None:
    bad, grouped, hidden = (
        "gfx1200-windows-7-14-1",
        "gfx12-windows-grouped-mm",
        "windows-rdna2-not-found",
    )

    assert holds(recorded, bad)
    assert not holds(recorded, bad, torch__rocm="7.14.0")
    assert not holds(recorded, bad, torch__rocm="10.1")
    assert not holds(recorded, bad, os="linux")
    assert not holds(recorded, bad, gpu__gfx="gfx1201")
    assert holds(recorded, grouped, torch__rocm="7.2.1")
    assert not holds(recorded, grouped, torch__rocm="7.13.0")
    assert not holds(recorded, grouped, gpu__gfx="gfx1100")
    assert not holds(recorded, hidden, torch__rocm="7.13")
    assert not holds(recorded, hidden, gpu__gfx="gfx1100")


def test_amdsmi_is_a_risk_beside_amds_own_wheels_only(recorded: Recorded) -> None:
    rule = "amdsmi-beside-wheel"

    assert rule in fired(recorded, "container-small-shm")
    assert not holds(recorded, rule, torch__made_by="pytorch")
    assert not holds(recorded, rule, os="windows")
    assert not holds(recorded, rule, torch__rocm="7.2")


def test_a_screen_is_a_risk_beside_training_where_the_limit_is_short(recorded: Recorded) -> None:
    several = "screen-beside-training"

    assert "lockup-timeout-short" in fired(recorded, "rx9060xt")
    assert not holds(recorded, several, gpu__count=1)
    assert not holds(recorded, several, driver__release="6.17.0")
    assert not holds(recorded, several, kernel__arguments=("amdgpu.lockup_timeout=10000",))
    assert not holds(recorded, several, gpu__screens=())


def test_memory_is_to_be_capped_on_rdna4_and_processor_graphics(recorded: Recorded) -> None:
    rule = "full-memory-freezes"

    assert rule in fired(recorded, "rx9060xt") & fired(recorded, "strix-halo-rocm-10")
    assert rule not in fired(recorded, "rx9070xt")  # torch 2.9 has no such setting
    assert rule not in fired(recorded, "rx6900xt-igpu") | fired(recorded, "mi355x")


def test_what_has_no_build_hears_that_before_any_other_fix(recorded: Recorded) -> None:
    first, *_ = recorded.diagnosis("rx580").findings

    assert (first.rule, first.severity.value) == ("gfx803-no-build", "blocks")
    assert "nobody has verified" in first.summary
    assert "no-torch-for-gpu" not in fired(recorded, "rx580")
    assert "pip install" not in str(
        [it.fix.commands for it in recorded.diagnosis("rx580").findings]
    )
    assert "gfx803-no-build" not in fired(recorded, "radeon-vii")


NOTHING_ELSE: dict[str, str | int] = {"os": "linux", "wsl": False, "gpu.withheld": 0}
ON_POLARIS = ("gfx803-no-build", "gfx803-left-out", "gpu-not-offered", "gpu-left-out")


@pytest.mark.parametrize(
    ("offered", "left_out", "says"),
    [
        (("gfx803",), (), ["gfx803-no-build"]),
        (("gfx1100", "gfx803"), (), []),  # the other one trains
        ((), ("gfx803",), ["gfx803-no-build"]),
        ((), ("gfx1100",), ["gpu-not-offered"]),
        ((), ("gfx803", "gfx1100"), ["gpu-not-offered"]),
        (("gfx1100",), ("gfx803",), ["gfx803-left-out"]),
        (("gfx1100",), ("gfx1031",), ["gpu-left-out"]),
    ],
)
def test_no_driver_is_mended_for_a_card_that_has_no_build(
    recorded: Recorded, offered: tuple[str, ...], left_out: tuple[str, ...], says: list[str]
) -> None:
    found = facts_of({
        **NOTHING_ELSE,
        "gpu.gfx": offered,
        "gpu.count": len(offered),
        "gpu.not_offered": left_out,
        "gpu.not_offered.gfx": left_out,
    })  # fmt: skip
    match = Matcher(found, {}, recorded.knowledge.arches).match

    assert [it for it in ON_POLARIS if match(recorded.knowledge.rules[it].when).holds] == says


def test_a_card_without_a_build_is_left_alone_beside_one_that_trains(recorded: Recorded) -> None:
    assert "gfx803-left-out" in fired(recorded, "rx7900xtx-old-card")
    assert "gpu-left-out" not in fired(recorded, "rx7900xtx-old-card")


def test_known_issues_of_a_release_end_with_it(recorded: Recorded) -> None:
    assert "gfx1103-rocm-10-crashes" in fired(recorded, "radeon-780m")
    assert not holds(recorded, "mi350-slower-training", torch__rocm="7.14")
    assert not holds(recorded, "gfx950-allreduce-wrong", torch__rocm="10.0")
    assert not holds(recorded, "gfx950-allreduce-wrong", **{"variable:NCCL_PROTO": "LL128,Simple"})
    assert not holds(recorded, "gfx90a-several-communicators", gpu__visible__count=1)


def test_a_windows_without_torch_is_pointed_to_the_python_of_the_app(recorded: Recorded) -> None:
    assert holds(recorded, "windows-managed-environment")
    assert not holds(recorded, "windows-managed-environment", os="linux")
    assert "windows-managed-environment" not in fired(recorded, "windows-rocm-10")


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
