"""The full screen of a terminal, where there is one; other systems print lines instead."""

from __future__ import annotations

import sys

if sys.platform == "win32":

    class FullScreen:
        """Windows consoles get lines. Unconfirmed: never run there."""

        @staticmethod
        def is_possible() -> bool:
            """Say that there is none."""
            return False

        def __enter__(self) -> FullScreen:  # noqa: PYI034 - Python 3.10 has no Self
            raise NotImplementedError

        def __exit__(self, *_: object) -> None:
            """Do nothing."""

        def draw(self, text: str) -> None:
            """Draw nothing."""

        def key(self, within: float) -> str:
            """Wait for nothing."""
            del within
            return ""

        @property
        def size(self) -> tuple[int, int]:
            """The columns and lines of any terminal."""
            return 80, 24

else:
    from rocsteady.host.posix.full_screen import FullScreen

__all__ = ["FullScreen"]
