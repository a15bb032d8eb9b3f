"""Which variables are known to harm a training run, and in which failures that shows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rocsteady.errors import KnowledgeError
from rocsteady.knowledge.data_file import read_data
from rocsteady.model import Value

FILE = Path(__file__).parent / "data" / "harmful_variables.toml"


class Harmful(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One variable, and what is likely to end if it is unset."""

    name: str
    failures: tuple[str, ...]  # kinds of failures.toml
    why: str
    sources: tuple[str, ...]  # "owner/repo#number", or the short name of a document
    harmless: tuple[str, ...] = ()  # values with which it does no harm
    containing: str = ""  # it harms only with this in its value
    beside: str = ""  # it harms only while this one is set too

    def harms(self, variables: Mapping[str, str]) -> bool:
        """Tell whether it does so in this environment."""
        value = variables.get(self.name)
        return (
            value is not None
            and value not in self.harmless
            and self.containing in value
            and (not self.beside or self.beside in variables)
        )


class _HarmfulFile(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    variable: tuple[Harmful, ...]


@cache
def harmful_variables(path: Path = FILE) -> tuple[Harmful, ...]:
    """Read the file, and refuse what is wrong with it by entry and field."""
    table = read_data(path, _HarmfulFile)
    for each in table.variable:
        for field in ("name", "failures", "why", "sources"):
            if not getattr(each, field):
                raise KnowledgeError(f"{path.name}: {each.name}: {field}: must not be empty")
    return table.variable
