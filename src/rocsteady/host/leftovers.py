"""Ends processes of a run whose supervisor and keeper were both killed."""

from __future__ import annotations

import contextlib
import sys

if sys.platform == "win32":

    def end_leftovers(
        name: str, supervisor: int, born: int
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Find nothing: a job of Windows ends with its last handle, and so with its supervisor."""
        del name, supervisor, born
        return {}, {}

    def guarded(name: str, supervisor: int, born: int) -> contextlib.AbstractContextManager[None]:
        """Do nothing, for the same reason."""
        del name, supervisor, born
        return contextlib.nullcontext()
else:
    from rocsteady.host.posix.leftovers import end_leftovers, guarded

__all__ = ["end_leftovers", "guarded"]
