"""Which variables are known to harm a training run, and in which failures that shows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated

from msgspec import Meta

from rocsteady.doctor.knowledge.reader import DataFolder
from rocsteady.doctor.knowledge.values import Sources, Text
from rocsteady.model import Value


class Harmful(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One variable, and what is likely to end if it is unset."""

    name: Text
    failures: Annotated[tuple[str, ...], Meta(min_length=1)]  # kinds of failures.toml
    why: Text
    sources: Sources  # "owner/repo#number", or the short name of a document
    harmless: tuple[str, ...] = ()  # values with which it does no harm
    containing: str = ""  # it harms only with this in its value
    beside: str = ""  # it harms only while this one is set too

    def harms(self, variables: Mapping[str, str]) -> bool:
        """Return whether it does so in this environment."""
        value = variables.get(self.name)
        return (
            value is not None
            and value not in self.harmless
            and self.containing in value
            and (not self.beside or self.beside in variables)
        )


@cache
def harmful_variables(data: DataFolder | None = None) -> tuple[Harmful, ...]:
    data = data or DataFolder()
    document = data.document("harmful_variables.toml", "variable")
    return data.listed(data.entries(document, "variable", Harmful))
