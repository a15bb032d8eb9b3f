"""Whether what reads a variable takes the value it has.

Each form is that of the code that reads it: sources ``rocr-flags``, ``clr-flag-values``,
``miopen-env``, ``rccl-param`` and ``pytorch-env`` of the knowledge base.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rocsteady.knowledge.hardware import Variable


class Form(NamedTuple):
    """What values look like."""

    pattern: str
    said: str
    otherwise: str  # what happens with another value


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "switch": Form("[01]", "0 or 1", "any other value is ignored"),
        "number": Form(
            r"\s*[+-]?(0[xX][0-9a-fA-F]+|\d+)", "a whole number", "other text is read as 0"
        ),
        "hip-switch": Form(
            r"true|false|\s*[+-]?\d+", "0 or 1, false or true", "other text is read as 0"
        ),
        "word-switch": Form(
            r"(?i:0|1|no|yes|off|on|false|true|disabled?|enabled?)",
            "0 or 1, off or on",
            "any other value is an error or is ignored",
        ),
        "gfx-version": Form(
            r"\d+\.\d+\.\d+", "three numbers such as 10.3.0", "with anything else no GPU is found"
        ),
        "devices": Form(
            r"\s*(-?\d+|GPU-[0-9a-fA-F]+)?(\s*,\s*(-?\d+|GPU-[0-9a-fA-F]+))*\s*",
            "GPU numbers or UUIDs, separated by commas",
            "the list ends before the first other entry",
        ),
    }
)


def wrong_value(value: str | None, known: Variable) -> str:
    """Return what is wrong with a value; "" if nothing is, or if the values are not known."""
    if value is None or not known.takes:
        return ""
    forms = [FORMS[each] for each in known.takes if each in FORMS]
    words = [each for each in known.takes if each not in FORMS]
    if any(re.fullmatch(form.pattern, value) for form in forms) or value.upper() in words:
        return ""
    said = " or ".join([", ".join(words), *(form.said for form in forms)]).removeprefix(" or ")
    otherwise = forms[0].otherwise if forms else "any other value is ignored"
    return f"Valid values: {said}; {otherwise}."
