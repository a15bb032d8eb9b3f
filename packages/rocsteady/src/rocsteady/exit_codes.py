"""Exit codes of rocsteady's own (docs/reference/commands.md); any other is the script's."""

from __future__ import annotations

RETRY = 75  # the same command may succeed later; nobody has to do anything first
PERSON_NEEDED = 76
INTERRUPTED, TERMINATED = 130, 143  # as a shell has them
