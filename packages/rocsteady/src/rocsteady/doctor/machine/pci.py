"""The PCIe link that really feeds a card.

Radeon cards since RDNA 1 carry a bridge of their own: the GPU itself always reports the wide link
inside the card, and the slot's width stands at the bridge above it. So we climb as long as the
bridge above is the card's, and take the narrowest link on the way.
"""

from __future__ import annotations

import re

from rocsteady.doctor.machine.root import Root, parent
from rocsteady.doctor.machine.view import View
from rocsteady.model import Value

AMD_GRAPHICS = 0x1002  # bridges on graphics cards; AMD's processors use 0x1022
BRIDGE = "0x0604"
EXTENDED, END = 0x100, 0x1000  # where PCIe's own capabilities lie; only root may read there
ACS, REDIRECTS = 0x000D, 0b1100  # the capability, and its two bits for requests and completions


class Link(Value, frozen=True, kw_only=True):
    """A PCIe connection as it runs now, and as the slowest part of it could run."""

    width: int
    speed: float  # GT/s
    max_width: int | None
    max_speed: float | None


def read_link(view: View, card: str) -> Link | None:
    links = [found for found in (_link(view, card),) if found]
    above = parent(view.resolve(card))
    while above != "/" and _is_card_bridge(view, above):
        links += [found for found in (_link(view, above),) if found]
        above = parent(above)
    return min(links, key=lambda link: link.width * link.speed, default=None)


def redirects_peers(view: View, card: str) -> bool | None:
    """Tell whether a bridge above the card sends what cards tell each other up to the root."""
    found = None
    above = parent(view.resolve(card))
    while (view.text(f"{above}/class") or "").startswith(BRIDGE):
        control = _acs(view.piece(f"{above}/config", EXTENDED, END - EXTENDED))
        if control is not None:
            found = bool(found) or bool(control & REDIRECTS)
        above = parent(above)
    return found


def _acs(space: bytes) -> int | None:
    """Return ACS's control register, from the list of extended capabilities."""
    at = EXTENDED
    for _ in range((END - EXTENDED) // 4):
        start = at - EXTENDED
        if not EXTENDED <= at <= EXTENDED + len(space) - 8:
            return None
        header = int.from_bytes(space[start : start + 4], "little")
        if header & 0xFFFF == ACS:
            return int.from_bytes(space[start + 6 : start + 8], "little")
        at = header >> 20
    return None


def _is_card_bridge(view: View, folder: str) -> bool:
    is_bridge = (view.text(f"{folder}/class") or "").startswith(BRIDGE)
    return is_bridge and view.number(f"{folder}/vendor") == AMD_GRAPHICS


def _link(view: View, folder: str) -> Link | None:
    width = view.number(f"{folder}/current_link_width")
    speed = _gigatransfers(view.text(f"{folder}/current_link_speed"))
    if not width or speed is None:
        return None
    return Link(
        width=width,
        speed=speed,
        max_width=view.number(f"{folder}/max_link_width"),
        max_speed=_gigatransfers(view.text(f"{folder}/max_link_speed")),
    )


def _gigatransfers(text: str | None) -> float | None:
    match = re.match(r"(\d{1,4}(?:\.\d{1,3})?) GT/s", text or "")
    return float(match.group(1)) if match else None


# Whether a screen hangs on an AMD GPU: who resets that GPU takes the picture away.


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
