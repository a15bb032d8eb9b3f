"""The report of a run as a live page: the same page, made anew at most once a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rocsteady.host.loopback_page import LoopbackPage
from rocsteady.journal.journal import Journal
from rocsteady.page.run_page import live_policy, render_page
from rocsteady.workflows.run_report import gather

KEPT = 1.0  # seconds


class LivePage:
    """Renders a run for whoever asks; many who ask at once get one page."""

    def __init__(self, journal: Journal, name: str) -> None:
        self._journal, self._name = journal, name
        self._lock = threading.Lock()
        self._page, self._at = "", float("-inf")

    def __call__(self) -> str:
        """Return the page as of now."""
        with self._lock:
            if time.monotonic() - self._at > KEPT:
                line = next(each for each in self._journal.runs() if each.run.name == self._name)
                self._page = render_page(gather(self._journal, line, now=time.time()), live=True)
                self._at = time.monotonic()
            return self._page


@contextmanager
def served(journal: Journal, name: str, *, port: int = 0) -> Iterator[str]:
    """Serve a run on loopback; give the address to open."""
    page = LoopbackPage(LivePage(journal, name), live_policy(), port=port)
    try:
        yield page.address
    finally:
        page.close()
