"""A module that loads its plugins in a thread, and waits for it, while it is being imported.

The thread needs this very module, which is not there until the thread is done.
"""

from __future__ import annotations

import threading


def load_plugins() -> None:
    from stuck_plugins import PLUGINS  # noqa: PLC0415 (waits for this module's lock)

    PLUGINS.append("augment")


loader = threading.Thread(target=load_plugins)
loader.start()
loader.join()
PLUGINS: list[str] = []
