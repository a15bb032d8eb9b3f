"""Addresses that a job file names: they may hold secrets, and only their host may be shown."""

from __future__ import annotations

from urllib.parse import urlsplit


def host_of(address: str) -> str:
    """Return the host of an address, which may be shown; "" if it is none of the web."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port  # asked for: only then a wrong one is found
    except ValueError:
        return ""
    plain = address.isascii() and address.isprintable() and " " not in address
    return host if plain and parts.scheme in ("http", "https") else ""
