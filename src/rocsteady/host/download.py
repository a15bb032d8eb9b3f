"""Fetches one file from an address, with limits. Nothing here decides what the file is good for."""

from __future__ import annotations

from rocsteady.errors import DownloadError

SECONDS = 20
PIECE = 1 << 16


def download(address: str, largest: int) -> bytes:
    """Return the file at an http or https address, of at most so many bytes."""
    import urllib.error  # noqa: PLC0415 - slow to import, and seldom needed
    import urllib.request  # noqa: PLC0415

    pieces, size = [], 0
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:  # noqa: S310 - the caller's
            while piece := answer.read(PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > largest:
                    raise DownloadError(f"{address}: larger than {largest} bytes")
    except (OSError, ValueError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"{address}: {reason}") from None
    return b"".join(pieces)
