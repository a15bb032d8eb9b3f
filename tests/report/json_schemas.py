"""JSON Schemas of what rocsteady writes, made from the classes that it writes.

They are in ``docs/schemas``; ``pytest tests/report/test_schemas.py --update-expected`` writes
them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from rocsteady.doctor.machine import machine, recording
from rocsteady.doctor.values import (
    DIAGNOSIS_VERSION,
    OFFERS_VERSION,
    VARIABLES_VERSION,
    Diagnosis,
    TorchOffers,
    VariableReview,
)
from rocsteady.model import Value
from rocsteady.plan.values import PLAN_VERSION, Plan

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def doctor_schema() -> dict[str, Any]:
    """Describe what ``rocsteady doctor --json`` prints."""
    return _schema(Diagnosis, "doctor", "rocsteady doctor --json", DIAGNOSIS_VERSION)


def env_schema() -> dict[str, Any]:
    """Describe what ``rocsteady env --json`` prints."""
    return _schema(VariableReview, "env", "rocsteady env --json", VARIABLES_VERSION)


def machine_schema() -> dict[str, Any]:
    """Describe what ``rocsteady machine --json`` prints."""
    return _schema(machine.Machine, "machine", "rocsteady machine --json", machine.VERSION)


def recording_schema() -> dict[str, Any]:
    """Describe what ``rocsteady machine --record FILE`` writes."""
    return _schema(
        recording.Recording, "recording", "rocsteady machine --record FILE", recording.VERSION
    )


def wheels_schema() -> dict[str, Any]:
    """Describe what ``rocsteady wheels --json`` prints."""
    return _schema(TorchOffers, "wheels", "rocsteady wheels --json", OFFERS_VERSION)


def plan_schema() -> dict[str, Any]:
    """Describe what ``rocsteady plan --json`` prints."""
    return _schema(Plan, "plan", "rocsteady plan --json", PLAN_VERSION)


# The name of the file in docs/schemas, and what makes its content.
SCHEMAS: Mapping[str, Callable[[], dict[str, Any]]] = MappingProxyType(
    {
        "doctor": doctor_schema,
        "env": env_schema,
        "machine": machine_schema,
        "plan": plan_schema,
        "recording": recording_schema,
        "wheels": wheels_schema,
    }
)


def _schema(kind: type[Value], name: str, title: str, version: int) -> dict[str, Any]:
    """Return the schema of a document whose ``version`` is this one."""
    schema: dict[str, Any] = _null_last(msgspec.json.schema(kind))
    top = schema["$defs"][kind.__name__]
    top["title"] = title
    top["properties"]["version"] = {"const": version}
    return {"$schema": DIALECT, "$id": f"urn:rocsteady:{name}:{version}", "title": title, **schema}


def _null_last(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Order what a value may be in one way: releases of msgspec differ in it."""
    if isinstance(schema, list):
        return sorted(map(_null_last, schema), key=lambda each: each == {"type": "null"})
    if isinstance(schema, dict):
        return {name: _null_last(value) for name, value in schema.items()}
    return schema
