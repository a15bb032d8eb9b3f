"""What the doctor says of every recorded machine: the whole screen, and for one the JSON.

The files in ``expected/`` are read by people when they change: they are what a change is about. The
number of rules is left out of them, so that a new rule changes only the machines that it is about.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rocsteady.doctor.values import Diagnosis
from rocsteady.screens.doctor import render_diagnosis
from rocsteady.screens.screen import Page

if TYPE_CHECKING:
    from tests.conftest import Expected, Recorded

EXPECTED = Path(__file__).parent / "expected"
AS_JSON = "withheld"
RULES = re.compile(r"\d+(\s+)rules?\b(?= checked|\))")


def of_any_release(diagnosis: Diagnosis) -> Diagnosis:
    """Leave out what each release of rocsteady or its knowledge changes."""
    return msgspec.structs.replace(
        diagnosis,
        rocsteady="(its version)",
        rules_checked=0,
        knowledge=msgspec.structs.replace(diagnosis.knowledge, version="", age_days=0),
    )


def test_the_screen_is_as_expected(
    recorded: Recorded, expected: Expected, every_machine: str
) -> None:
    diagnosis = of_any_release(recorded.diagnosis(every_machine))
    screen = render_diagnosis(diagnosis, page=Page(80, colour=False))

    expected(EXPECTED / f"{every_machine}.txt", RULES.sub(r"N\1rules", screen))


def test_the_json_is_as_expected(recorded: Recorded, expected: Expected) -> None:
    diagnosis = of_any_release(recorded.diagnosis(AS_JSON))
    document = msgspec.json.format(msgspec.json.encode(diagnosis), indent=2).decode()

    expected(EXPECTED / f"{AS_JSON}.json", f"{document}\n")


def test_the_json_says_everything_that_the_screen_is_made_of(
    recorded: Recorded, every_machine: str
) -> None:
    diagnosis = recorded.diagnosis(every_machine)

    read_back = msgspec.json.decode(msgspec.json.encode(diagnosis), type=Diagnosis)

    assert read_back == diagnosis


def test_nothing_is_expected_of_a_machine_that_is_gone(recorded: Recorded) -> None:
    wanted = {f"{name}.txt" for name in recorded.names} | {f"{AS_JSON}.json"}

    assert {path.name for path in EXPECTED.iterdir()} == wanted
