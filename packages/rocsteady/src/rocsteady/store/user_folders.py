"""The user's own folders of rocsteady: for configuration and state."""

from __future__ import annotations

from pathlib import Path

import platformdirs

NAME = "rocsteady"


def config_folder() -> Path:
    return platformdirs.user_config_path(NAME, appauthor=False)


def state_folder() -> Path:
    return platformdirs.user_state_path(NAME, appauthor=False)
