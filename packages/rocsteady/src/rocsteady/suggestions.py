"""What to say about a name that does not exist: the closest one that does, or how to list them."""

from __future__ import annotations

from collections.abc import Iterable

MOST_NAMES = 3  # names that merely contain what was typed


def no_such(thing: str, name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return "no remedy named 'cpuu'. Did you mean 'cpu'?"; ``otherwise`` if nothing is close."""
    import difflib  # noqa: PLC0415 - only for a mistyped name

    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    near = near or [each for each in names if name and name in each][:MOST_NAMES]
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else otherwise
    return f"no {thing} named {name!r}. {hint}".rstrip()
