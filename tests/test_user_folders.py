"""All that a user has of rocsteady lies where its own page says, on every system."""

from __future__ import annotations

import re
from pathlib import Path

import platformdirs
import pytest
from platformdirs.windows import Windows

from rocsteady.store.user_folders import config_folder, state_folder

SOURCE = Path(__file__).parents[1] / "packages"


def test_on_windows_no_folder_is_named_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "PlatformDirs", Windows)
    monkeypatch.setattr(platformdirs.windows, "get_win_folder", lambda _: "C:\\Local")

    found = {each().as_posix() for each in (config_folder, state_folder)}

    assert found == {Path("C:\\Local", "rocsteady").as_posix()}


def test_no_other_file_asks_for_a_folder_of_the_user() -> None:
    asking = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"\bplatformdirs\b", path.read_text(encoding="utf-8"))
    ]

    assert asking == ["rocsteady/src/rocsteady/store/user_folders.py"]
