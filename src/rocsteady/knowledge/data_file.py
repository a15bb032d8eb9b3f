"""Reads a file of the knowledge base as one value, and names the file in every error."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from rocsteady.errors import KnowledgeError
from rocsteady.toml import parse_toml

T = TypeVar("T")


def read_data(path: Path, kind: type[T]) -> T:
    """Return the content of a file; refuse what is wrong with it by entry and field."""
    try:
        return msgspec.convert(parse_toml(path.read_text(encoding="utf-8")), kind)
    except OSError as error:
        raise KnowledgeError(f"{path.name}: {error.strerror}") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise KnowledgeError(f"{path.name}: {error}") from None
