"""Values that many tests need and of which few fields matter."""

from __future__ import annotations

from typing import Any

from rocsteady.model import Certainty, Failure, Fingerprint


def failure(kind: str, **fields: Any) -> Failure:  # noqa: ANN401 - those of Failure
    """Return a certain failure of which nothing but the kind matters, unless ``fields`` differ."""
    usual = {"title": kind, "words": "", "certainty": Certainty.CERTAIN, "seen": ()}
    fingerprint = fields.pop("fingerprint", Fingerprint(kind=kind))
    return Failure(kind=kind, fingerprint=fingerprint, **{**usual, **fields})
