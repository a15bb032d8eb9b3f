"""GPUs without code in torch: none has it, some have it, or it cannot be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.checks import wheel_lacks_arch, wheel_lacks_one_arch
from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import gather
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.system import SetVariable

if TYPE_CHECKING:
    from tests.conftest import Recorded


def both(recorded: Recorded, machine: Machine) -> tuple[Seen, Seen]:
    facts = gather(machine, recorded.knowledge)
    return (
        wheel_lacks_arch(machine, facts, recorded.knowledge),
        wheel_lacks_one_arch(machine, facts, recorded.knowledge),
    )


def having(machine: Machine, arches: tuple[str, ...] | None = None, **variables: str) -> Machine:
    found = tuple(SetVariable(name=name, value=value) for name, value in variables.items())
    changed = msgspec.structs.replace(machine, variables=found)
    if arches is None or machine.torch is None:
        return changed
    torch = msgspec.structs.replace(machine.torch, arches=arches, arches_from="library")
    return msgspec.structs.replace(changed, torch=torch)


@pytest.mark.parametrize(
    ("machine_name", "lacking", "partly"),
    [
        ("rx7900xtx", (), ()),
        ("rx6700xt", ("gfx1031",), ()),
        ("rx5700xt-override", ("gfx1010",), ()),
        ("rx6700xt-override", (), ()),  # runs its sibling's code
        ("rx6900xt-igpu", (), ()),  # gfx1036 is to be hidden, not trained on
        ("rx7900xtx-rx6700xt", (), ("gfx1031",)),
        ("no-amd-gpu", (), ()),
    ],
)
def test_of_recorded_machines(
    recorded: Recorded, machine_name: str, lacking: Seen, partly: Seen
) -> None:
    assert both(recorded, recorded.machine(machine_name)) == (lacking, partly)


def test_a_generic_target_is_code_for_its_family(recorded: Recorded) -> None:
    machine = recorded.machine("rx6700xt")

    assert both(recorded, having(machine, ("gfx10-3-generic",))) == ((), ())
    assert both(recorded, having(machine, ("gfx11-generic",))) == (("gfx1031",), ())


def test_an_override_to_code_that_is_not_there_does_not_help(recorded: Recorded) -> None:
    machine = having(recorded.machine("rx6700xt"), HSA_OVERRIDE_GFX_VERSION="10.3.2")

    assert both(recorded, machine) == (("gfx1031",), ())


def test_a_card_that_is_hidden_does_not_count(recorded: Recorded) -> None:
    machine = recorded.machine("rx7900xtx-rx6700xt")

    assert both(recorded, having(machine, HIP_VISIBLE_DEVICES="0")) == ((), ())
    assert both(recorded, having(machine, HIP_VISIBLE_DEVICES="1")) == (("gfx1031",), ())


@pytest.mark.parametrize(
    ("machine_name", "missing"),
    [("wsl2", "gpu.gfx"), ("old-kernel", "torch.arches"), ("rx9070xt-windows", "torch.arches")],
)
def test_cannot_tell(recorded: Recorded, machine_name: str, missing: str) -> None:
    for check in (wheel_lacks_arch, wheel_lacks_one_arch):
        with pytest.raises(CannotTell) as raised:
            check(recorded.machine(machine_name), recorded.facts(machine_name), recorded.knowledge)
        assert raised.value.fact == missing


def test_without_torch_it_cannot_be_told(recorded: Recorded) -> None:
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), torch=None)

    with pytest.raises(CannotTell, match=r"torch\.build"):
        both(recorded, machine)
