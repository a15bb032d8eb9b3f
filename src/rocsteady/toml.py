"""One reader for TOML, on every Python that is supported."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table that the text describes, or raise ValueError with the line and column."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("tables are nested too deeply") from None
