"""Says as soon as it is known that a setting of the strategy was refused inside."""

from __future__ import annotations

from rocsteady.hangs.heartbeat_pages import read_applied
from rocsteady.model import Strategy
from rocsteady.run.announcer import Announcer
from rocsteady.run.context import AttemptContext

EVERY = 1.0  # seconds between looks
REFUSED = "refused"


class Refusals:
    """Looks for refusals in one attempt, and says each once."""

    def __init__(self, announcer: Announcer, context: AttemptContext, began: float) -> None:
        changes = context.strategy != Strategy()
        self._pages = context.pages if changes else None
        self._announcer = announcer
        self._due = began + EVERY
        self._said: set[str] = set()

    def poll(self, now: float) -> None:
        """Say what is new, now and then."""
        if now >= self._due:
            self._due = now + EVERY
            self.say()

    def say(self) -> None:
        """Say what is new."""
        for each in read_applied(self._pages) if self._pages else ():
            if each.outcome == REFUSED and each.setting not in self._said:
                self._said.add(each.setting)
                self._announcer.say(
                    f"{each.setting} was not applied; using the script's own setting:"
                    f" {each.why.rstrip('.')}."
                )
