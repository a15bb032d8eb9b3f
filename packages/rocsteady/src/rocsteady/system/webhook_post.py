"""Sends one request to a webhook: a process of its own, which may hang and be ended.

Started as ``python -I -S webhook_post.py``; standard input has the address, headers and body as
JSON, so that the address is on no command line. Prints why it failed, never the address. Standard
library only. Redirects are not followed: they could lead anywhere.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from typing import NoReturn

TIMEOUT = 10.0  # seconds without a byte


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Refuse."""


def main() -> NoReturn:
    """Send it; the exit code says whether it was taken."""
    order = json.load(sys.stdin)
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked when it was read
        order["url"], order["body"].encode(), {**order["headers"], "User-Agent": "rocsteady"}
    )
    try:
        opener = urllib.request.build_opener(_NoRedirect)
        with opener.open(request, timeout=TIMEOUT) as answer:
            answer.read(1024)
    except urllib.error.HTTPError as error:
        sys.exit(_failed(f"HTTP status {error.code}"))
    except urllib.error.URLError as error:
        reason = error.reason
        known = reason.strerror if isinstance(reason, OSError) else ""
        sys.exit(_failed(known or type(reason).__name__))
    except (OSError, ValueError) as error:
        sys.exit(_failed(getattr(error, "strerror", "") or type(error).__name__))
    sys.exit(0)


def _failed(why: str) -> int:
    sys.stdout.write(why)
    return 1


if __name__ == "__main__":
    main()
