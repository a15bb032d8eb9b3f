"""The user's own folders of rocsteady: for configuration and state."""

from __future__ import annotations

from pathlib import Path

import platformdirs

NAME = "rocsteady"


def config_folder() -> Path:
    """Return where the user configures rocsteady."""
    return platformdirs.user_config_path(NAME, appauthor=False)


def state_folder() -> Path:
    """Return where rocsteady remembers things."""
    return platformdirs.user_state_path(NAME, appauthor=False)
