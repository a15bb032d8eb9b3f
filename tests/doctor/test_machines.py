"""What the doctor says of every recorded machine, whole: the screen and the JSON.

The files in ``expected/`` are read by people when they change: they are what a change is about.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rocsteady.report.diagnosis import render_diagnosis
from rocsteady.vocabulary import Diagnosis

if TYPE_CHECKING:
    from tests.conftest import Expected, Recorded

EXPECTED = Path(__file__).parent / "expected"


def test_the_screen_is_as_expected(
    recorded: Recorded, expected: Expected, every_machine: str
) -> None:
    screen = render_diagnosis(recorded.diagnosis(every_machine), width=80, colour=False)

    expected(EXPECTED / f"{every_machine}.txt", screen)


def test_the_json_is_as_expected(
    recorded: Recorded, expected: Expected, every_machine: str
) -> None:
    of_any_release = msgspec.structs.replace(
        recorded.diagnosis(every_machine), rocsteady="(its version)"
    )
    document = msgspec.json.format(msgspec.json.encode(of_any_release), indent=2).decode()

    expected(EXPECTED / f"{every_machine}.json", f"{document}\n")


def test_the_json_says_everything_that_the_screen_is_made_of(
    recorded: Recorded, every_machine: str
) -> None:
    diagnosis = recorded.diagnosis(every_machine)

    read_back = msgspec.json.decode(msgspec.json.encode(diagnosis), type=Diagnosis)

    assert read_back == diagnosis


def test_nothing_is_expected_of_a_machine_that_is_gone(recorded: Recorded) -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == set(recorded.names)
