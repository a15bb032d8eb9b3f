"""Whether a screen hangs on an AMD GPU: who resets that GPU takes the picture away."""

from __future__ import annotations

import re

from rocsteady.machine.root import Root

CARDS = "/sys/class/drm"
AMD = "0x1002"
_CONNECTOR = re.compile(r"(card\d+)-.+", re.ASCII)


def displays(root: Root) -> tuple[str, ...] | None:
    """Name the connectors of AMD GPUs that have a screen; None if that cannot be told.

    What the kernel remembers is read; no GPU is asked, and none is woken.
    """
    try:
        names = root.names(CARDS)
    except OSError:
        return None
    matches = [match for match in map(_CONNECTOR.fullmatch, names) if match]
    amd = {card for card in {match.group(1) for match in matches} if _vendor(root, card) == AMD}
    return tuple(
        match.group()
        for match in matches
        if match.group(1) in amd and _text(root, f"{CARDS}/{match.group()}/status") == "connected"
    )


def _vendor(root: Root, card: str) -> str:
    return _text(root, f"{CARDS}/{card}/device/vendor")


def _text(root: Root, path: str) -> str:
    try:
        return root.text(path).strip()
    except OSError:
        return ""
