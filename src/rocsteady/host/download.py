"""Fetches one file from an address, with limits. Nothing here decides what the file is good for."""

from __future__ import annotations

from rocsteady.errors import DownloadError

SECONDS = 20
PIECE = 1 << 16


def download(address: str, largest: int) -> bytes:
    """Return the file at an http or https address, of at most so many bytes."""
    import urllib.error  # noqa: PLC0415 - slow to import, and seldom needed
    import urllib.request  # noqa: PLC0415

    pieces, size, shown = [], 0, without_credentials(address)
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:  # noqa: S310 - the caller's
            while piece := answer.read(PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > largest:
                    raise DownloadError(f"{shown}: larger than {largest} bytes")
    except (OSError, ValueError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"{shown}: {reason}") from None
    return b"".join(pieces)


def without_credentials(address: str) -> str:
    """Return an address without its user, password and query: these may be secrets."""
    scheme, _, rest = address.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
