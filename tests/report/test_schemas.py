"""The schemas in docs/ are those of the code, and all that rocsteady writes keeps to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec
import pytest
from json_schemas import (
    SCHEMAS,
    doctor_schema,
    machine_schema,
    recording_schema,
)

if TYPE_CHECKING:
    from tests.conftest import Expected, Recorded

KEPT = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_that_is_kept_is_the_one_of_the_code(expected: Expected, name: str) -> None:
    expected(KEPT / f"{name}.json", json.dumps(SCHEMAS[name](), indent=2) + "\n")


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one_and_says_of_what(name: str) -> None:
    schema = SCHEMAS[name]()

    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:rocsteady:{name}:1"
    assert schema["title"].startswith("rocsteady ")
    assert {path.stem for path in KEPT.iterdir()} == set(SCHEMAS)


def test_what_the_doctor_says_of_every_machine_validates(
    recorded: Recorded, every_machine: str
) -> None:
    validate(msgspec.json.encode(recorded.diagnosis(every_machine)), doctor_schema())


def test_the_facts_of_every_machine_validate(recorded: Recorded, every_machine: str) -> None:
    validate(msgspec.json.encode(recorded.machine(every_machine)), machine_schema())


def test_every_recording_validates(recorded: Recorded, every_machine: str) -> None:
    validate(recorded.path(every_machine).read_bytes(), recording_schema())


@pytest.mark.parametrize(
    ("field", "value"),
    [("version", 2), ("trains_on", "toaster"), ("findings", None), ("facts_read", "many")],
)
def test_something_else_does_not_validate(recorded: Recorded, field: str, value: object) -> None:
    document = json.loads(msgspec.json.encode(recorded.diagnosis("rx7900xtx")))

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, field: value}, doctor_schema())


def validate(document: bytes, schema: dict[str, Any]) -> None:
    jsonschema.validate(json.loads(document), schema, cls=jsonschema.Draft202012Validator)
