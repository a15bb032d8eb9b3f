"""One comparison of versions, whatever project they are from."""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.specifiers import SpecifierSet
from packaging.version import Version

_NUMBERS = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,9})", re.ASCII)


def version_fits(text: str, wanted: str) -> bool:
    """Return whether a version such as 6.8.0-45-generic or 2.9.0.dev20250706 is in a range.

    Only the leading numbers count: a nightly build of 2.9 is taken for 2.9.
    """
    numbers = _NUMBERS.match(text)
    return numbers is not None and Version(numbers.group(1)) in _range(wanted)


@lru_cache(maxsize=4096)
def _range(wanted: str) -> SpecifierSet:
    return SpecifierSet(wanted)
