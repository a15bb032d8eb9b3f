"""What could run here, and what is ruled out before anything is tried."""

from __future__ import annotations

from builders import finding

from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.values import ComputeDevice
from rocsteady.model import Strategy
from rocsteady.plan.candidates import local_options
from rocsteady.plan.circumstances import Circumstances
from rocsteady.plan.values import Basis


def here(**more: object) -> Circumstances:
    return Circumstances(os="linux", **more)  # type: ignore[arg-type]


def test_without_a_gpu_there_is_the_cpu_as_the_script_says() -> None:
    (only,) = local_options(here(cores=2))

    assert (only.id, only.strategy, only.title) == ("cpu", Strategy(), "CPU, unchanged")


def test_a_gpu_as_it_is_and_then_the_cpu() -> None:
    options = local_options(here(gpus=1, trains_on=ComputeDevice.GPU))

    assert [option.id for option in options] == ["gpu", "cpu"]
    assert options[1].strategy.device == "cpu"


def test_variables_that_harm_are_taken_away_in_an_option_of_their_own_that_says_why() -> None:
    harmful = [each for each in harmful_variables() if not each.beside][:2]

    options = local_options(here(gpus=1, harmful=tuple(harmful)))

    clean = next(option for option in options if option.id == "gpu+clean")
    assert clean.strategy.variables == {each.name: None for each in harmful}
    assert all(f"{each.name}: " in " ".join(clean.rests_on) for each in harmful)


def test_of_several_gpus_one_is_an_option_too() -> None:
    options = {option.id: option for option in local_options(here(gpus=2))}

    assert options["gpu+one"].strategy.gpus == (0,)


def test_what_helped_before_is_a_option() -> None:
    inline = Strategy(workers=0)

    options = {
        option.id: option
        for option in local_options(here(gpus=1, remedied=(("loader-inline", inline),)))
    }

    assert options["gpu+loader-inline"].strategy == inline


def test_a_gpu_that_took_the_machine_down_is_ruled_out_whatever_the_loader() -> None:
    inline = ("loader-inline", Strategy(workers=0))
    options = local_options(here(gpus=1, deadly=(Strategy(),), remedied=(inline,)))

    out = [option for option in options if option.basis is Basis.RULED_OUT]
    assert [option.id for option in out] == ["gpu", "gpu+loader-inline"]
    assert out[0].rests_on[0].startswith("machine-went-down")
    assert options[-1].id == "cpu"
    assert options[-1].basis is Basis.TRIAL


def test_a_finding_that_blocks_rules_the_gpu_out_by_its_name() -> None:
    findings = (finding("override-active", Severity.RISKS), finding("wheel-lacks-arch"))

    first, *_ = local_options(here(gpus=1, trains_on=ComputeDevice.CPU, findings=findings))

    assert first.basis is Basis.RULED_OUT
    assert first.rests_on == ("wheel-lacks-arch: what it says",)
