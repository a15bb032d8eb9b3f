"""Options that cannot run here."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING

import pytest
from builders import finding, pace

from rocsteady.doctor.knowledge.gpu_rental import CardSpeed, load_speeds
from rocsteady.doctor.knowledge.options import load_other_options
from rocsteady.doctor.values import ComputeDevice
from rocsteady.plan.circumstances import Circumstances, facts_of
from rocsteady.plan.estimates import (
    CLOUD,
    WHEEL,
    Measured,
    cloud_rows,
    costs,
    on_recorded,
    other_options,
    recorded_cpu,
    row,
)
from rocsteady.plan.values import Basis

if TYPE_CHECKING:
    from rocsteady.doctor.knowledge.reader import Knowledge
    from tests.conftest import Recorded

TODAY = date(2026, 11, 15)
OPTIONS = {option.id: option for option in load_other_options()}


def windows(**more: object) -> Circumstances:
    return Circumstances(
        os="windows",
        gpus=1,
        gfx=("gfx1201",),
        trains_on=ComputeDevice.GPU,
        findings=(finding("windows-training-unsupported"),),
        **more,  # type: ignore[arg-type]
    )


def test_on_windows_wsl2_answers_a_hang_in_backward() -> None:
    possible, out = other_options(windows(), ["hang-in-backward"])

    assert {"wsl2", "cloud"} <= {option.id for option in possible}
    assert {"directml"} <= {option.id for option in out}
    assert all(
        option.basis is Basis.RULED_OUT and option.rests_on and option.sources for option in out
    )


def test_on_linux_wsl2_is_no_option_for_a_loader_that_hangs() -> None:
    here = Circumstances(os="linux", gpus=1, gfx=("gfx1010",))

    possible, out = other_options(here, ["hang-in-loader"])

    assert "wsl2" not in {option.id for option in possible} | {option.id for option in out}


def test_two_gpus_have_ddp_as_a_row_that_changes_the_script() -> None:
    possible, _ = other_options(Circumstances(os="linux", gpus=2, gfx=("gfx1100",)), [])

    ddp = next(option for option in possible if option.id == "ddp")
    assert row(ddp, None).changes.startswith("script: ")


@pytest.mark.parametrize(
    ("name", "offered"),
    [("rx6900xt-igpu", False), ("rx7900xtx-rx6700xt", True), ("rx7900xt-pair", True)],
)
def test_an_integrated_gpu_is_no_second_one_for_a_job(
    recorded: Recorded, knowledge: Knowledge, name: str, *, offered: bool
) -> None:
    here = facts_of(recorded.machine(name), knowledge)

    possible, _ = other_options(here, [])

    assert here.gpus > 1
    assert ("ddp" in {option.id for option in possible}) == offered


def test_another_wheel_is_named_or_ruled_out() -> None:
    lacking = (finding("wheel-lacks-arch"),)

    def found(gfx: str) -> tuple[str, str]:
        here = Circumstances(os="linux", gpus=1, gfx=(gfx,), findings=lacking)
        possible, out = other_options(here, [])
        named = next((option.verdict for option in possible if option.id == WHEEL), "")
        return named, next((option.rests_on[0] for option in out if option.id == WHEEL), "")

    named, why = found("gfx1201")
    assert re.match(
        r"torch >=2\.\d+,<2\.\d+ for ROCm [\d.]+ is the newest with code for gfx1201", named
    )
    assert why == ""
    assert found("gfx1010") == ("", "there is none for gfx1010 on Linux")


def test_from_a_cpu_the_pace_lies_between_here_and_no_compute_at_all() -> None:
    card = CardSpeed(name="a", memory=8, sources=("x",))
    slowed = pace(1.0, data=0.25, compute=0.5, backward=0.25)
    measured = Measured(pace=slowed, on_gpu=False, card=card)

    found = row(OPTIONS["wsl2"], measured).pace

    assert found is not None
    assert found.low == pytest.approx(1.0 / 1.1)
    assert found.high == pytest.approx(4.0, rel=0.05)  # what is left is a quarter
    assert found.low < found.rate < found.high


def test_between_cards_compute_is_scaled_by_peak_figures_and_the_rest_is_not() -> None:
    cards = load_speeds()
    here = cards["Radeon RX 5700 XT"]
    measured = Measured(pace=pace(1.0, data=0.5, compute=0.5), on_gpu=True, card=here)

    rows = [it for it in cloud_rows(OPTIONS[CLOUD], measured, TODAY) if not it.changes]

    assert len(rows) == len({each.title.split(", ")[1] for each in rows})  # one row a card
    for each in rows:
        assert each.pace is not None
        assert 1.0 < each.pace.low <= each.pace.rate <= each.pace.high < 2.0
        assert each.price is not None
        assert each.price.source.startswith("https://")


def test_what_did_not_fit_is_not_offered_the_same_memory() -> None:
    cards = load_speeds()
    measured = Measured(pace=pace(1.0, compute=1.0), on_gpu=True, card=cards["Radeon RX 7900 XTX"])

    rows = list(cloud_rows(OPTIONS[CLOUD], measured, TODAY, more_than=24.0))

    names = {each.title.split(", ")[1].removeprefix("4 x ") for each in rows}
    assert names
    assert all(cards[name].memory > 24 for name in names)


def test_several_rented_cards_are_a_row_that_costs_as_many_and_changes_the_script() -> None:
    card = load_speeds()["Radeon RX 7900 XTX"]
    measured = Measured(pace=pace(1.0, compute=1.0), on_gpu=True, card=card)
    torchrun = ("torchrun", "--nproc-per-node", "4", "train.py")

    rows = {it.id: it for it in cloud_rows(OPTIONS[CLOUD], measured, TODAY)}
    launched = {it.id: it for it in cloud_rows(OPTIONS[CLOUD], measured, TODAY, command=torchrun)}

    several = [it for it in rows.values() if it.strategy.gpus]
    assert several
    for each in several:
        one = rows[each.id.partition("+")[0]]
        assert each.price is not None
        assert one.price is not None
        assert each.price.dollars == pytest.approx(4 * one.price.dollars)
        assert each.pace is not None
        assert one.pace is not None
        assert one.pace.low <= each.pace.low < each.pace.rate < each.pace.high
        assert each.strategy.gpus == (0, 1, 2, 3)  # so many are exported
        assert each.changes
        assert not launched[each.id].changes


def test_a_gpu_without_figures_is_not_taken_for_a_cpu() -> None:
    measured = Measured(pace=pace(1.0, compute=1.0), on_gpu=True, card=None, cores=16)

    assert all(each.pace is None for each in cloud_rows(OPTIONS[CLOUD], measured, TODAY))


def test_cpu_and_gpu_of_a_recorded_machine_are_scaled_from_the_same_pace() -> None:
    """A threaded CPU there is never faster than its own GPU by the count of its processors."""
    card = load_speeds()["Radeon RX 7900 XT"]
    measured = Measured(
        pace=pace(1.0, data=0.05, compute=0.95),
        on_gpu=False,
        cores=2,
        recorded=True,
        target=card,
        target_cores=32,
    )

    (cpu, _), (gpu, _) = recorded_cpu(measured), on_recorded(measured)

    assert cpu is not None
    assert gpu is not None
    assert gpu.rate > 2 * cpu.rate
    assert cpu.low <= 0.5  # the job may have one thread


def test_without_an_amd_gpu_nothing_is_offered_for_one() -> None:
    none, _ = other_options(Circumstances(os="linux"), ["torch-without-gpu-support"])
    there, _ = other_options(
        Circumstances(os="linux", gpus=1, gfx=("gfx1100",)), ["torch-without-gpu-support"]
    )

    assert {it.id for it in there} - {it.id for it in none} >= {WHEEL, "container"}
    assert not {WHEEL, "container", "wheel-multi-arch"} & {it.id for it in none}


def test_a_command_that_is_torchrun_has_no_row_for_what_it_already_does() -> None:
    pair = Circumstances(os="linux", gpus=2, gfx=("gfx1100",))
    ranks = ("torchrun", "--nproc-per-node", "2", "train.py")

    assert "ddp" in {it.id for it in other_options(pair, [])[0]}
    assert "ddp" not in {it.id for it in other_options(pair, [], ranks)[0]}
    assert "ddp" not in {
        it.id
        for it in other_options(pair, [], ("python", "-m", "torch.distributed.run", "t.py"))[0]
    }


def test_for_a_recorded_card_the_same_scaling_is_wider() -> None:
    here = CardSpeed(name="a", memory=8, sources=("x",), fp32=10.0, bandwidth=400.0)
    there = CardSpeed(name="b", memory=8, sources=("x",), fp32=40.0, bandwidth=800.0)
    measured = Measured(
        pace=pace(1.0, data=0.5, compute=0.5), on_gpu=True, card=here, recorded=True, target=there
    )

    found, told = on_recorded(measured)

    assert found is not None
    assert found.low == pytest.approx(1 / (0.5 + 0.5 / 2) / 1.3)
    assert found.high == pytest.approx(1 / (0.5 + 0.5 / 4) * 1.3)
    assert "give or take 30 % for another machine: rocsteady's guess" in told
    assert row(load_other_options()[0], measured).pace == found


def test_a_recorded_card_without_figures_has_no_pace_and_it_says_so() -> None:
    measured = Measured(pace=pace(1.0, compute=1.0), on_gpu=True, recorded=True)

    assert on_recorded(measured) == (
        None,
        ("speed not known: rocsteady has no peak figures of the GPU to scale by",),
    )


def test_without_a_pace_there_is_no_figure_and_it_says_so() -> None:
    found = row(OPTIONS["wsl2"], None)

    assert found.pace is None
    assert "no trial measured a speed to scale" in found.rests_on


def test_the_price_of_hours_and_one_that_is_old() -> None:
    cheapest, *_ = cloud_rows(OPTIONS[CLOUD], None, TODAY)
    later, *_ = cloud_rows(OPTIONS[CLOUD], None, date(2026, 8, 23))

    assert cheapest.price is not None
    assert costs(cheapest, 3600, 7200) == pytest.approx(
        (cheapest.price.dollars, 2 * cheapest.price.dollars)
    )
    assert cheapest.price.old
    assert later.price is not None
    assert not later.price.old


def on_cpu(target: str | None, *, cores: int = 2, target_cores: int = 16) -> Measured:
    return Measured(
        pace=pace(1.0, data=0.05, compute=0.95),
        on_gpu=False,
        cores=cores,
        recorded=True,
        target=load_speeds()[target] if target else None,
        target_cores=target_cores,
    )


def test_the_gpu_of_a_recorded_machine_is_as_fast_whatever_processors_it_has() -> None:
    found = [on_recorded(on_cpu("Radeon RX 7900 XTX", target_cores=n))[0] for n in (2, 16, 64, 256)]

    assert found[0] is not None
    assert found == [found[0]] * 4


@pytest.mark.parametrize("cores", [2, 16, 64])
def test_a_rented_gpu_and_an_own_one_are_scaled_by_one_rule(cores: int) -> None:
    """A faster card by its figures is never slower, whoever owns it."""
    xtx = on_cpu("Radeon RX 7900 XTX", cores=cores)
    rented = {it.title: it.pace for it in cloud_rows(OPTIONS[CLOUD], xtx, TODAY)}
    faster = next(found for title, found in rented.items() if title.startswith("cloud, RTX 5090"))
    own, _ = on_recorded(xtx)

    assert own is not None
    assert faster is not None
    assert own == row(OPTIONS["wsl2"], xtx).pace
    assert faster.rate > own.rate
    assert faster.high >= own.high


def test_from_a_cpu_a_gpu_without_figures_has_no_speed() -> None:
    none, told = on_recorded(on_cpu(None))

    assert none is None
    assert told == ("speed not known: rocsteady has no peak figures of the GPU to scale by",)
    assert row(OPTIONS["wsl2"], on_cpu(None)).pace is None


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("rx9070xt-windows", "Radeon RX 9070 XT"),
        ("windows-rocm-10", "Radeon RX 9070 XT"),
        ("radeon-780m", None),
        ("strix-halo", None),
        ("wsl2", None),
        ("mi300x-cpx", None),
    ],
)
def test_which_recorded_gpus_have_figures(
    recorded: Recorded, knowledge: Knowledge, name: str, card: str | None
) -> None:
    found = facts_of(recorded.machine(name), knowledge).card

    assert (found and found.name) == card


def test_a_torchrun_rents_a_card_for_each_of_its_ranks() -> None:
    ranks = ("torchrun", "--nproc-per-node", "2", "train.py")
    plain = {it.id: it for it in cloud_rows(OPTIONS[CLOUD], None, TODAY)}

    rows = list(cloud_rows(OPTIONS[CLOUD], None, TODAY, command=ranks))

    assert rows
    for each in rows:
        one = plain[each.id.partition("+")[0]].price
        assert each.strategy.gpus == (0, 1)
        assert " 2 x " in each.title
        assert each.price is not None
        assert one is not None
        assert each.price.dollars == pytest.approx(2 * one.dollars)
        assert not each.changes
