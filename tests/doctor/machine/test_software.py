"""What an observation is true of, and what has changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocsteady.doctor.machine.machine import changes, software_of

if TYPE_CHECKING:
    from tests.conftest import Recorded


def test_every_machine_has_one_line(recorded: Recorded, every_machine: str) -> None:
    line = software_of(recorded.machine(every_machine))

    assert line.startswith("GPU ")
    assert "\n" not in line
    assert changes(line, line) == ""


def test_a_machine_with_two_cards(recorded: Recorded) -> None:
    machine = recorded.machine("rx7900xt-pair")

    line = software_of(machine)

    assert line.startswith("GPU 2 x gfx1100; driver ")
    assert machine.torch is not None
    assert f"; torch {machine.torch.version}; Python " in line


def test_without_a_gpu_its_driver_makes_no_difference(recorded: Recorded) -> None:
    line = software_of(recorded.machine("no-amd-gpu"))

    assert line.startswith("GPU none; torch ")


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ("GPU a; torch 2.9.1", "GPU a; torch 2.10.0", "torch 2.9.1, now 2.10.0"),
        (
            "GPU a; driver 6.8; torch 2",
            "GPU a; driver 6.9; torch 3",
            "driver 6.8, now 6.9; torch 2, now 3",
        ),
        ("GPU a; ROCm 6.2", "GPU a", "ROCm 6.2, now none"),
        ("", "GPU a", "GPU none, now a"),
    ],
)
def test_only_what_changed_is_told(before: str, now: str, said: str) -> None:
    assert changes(before, now) == said
