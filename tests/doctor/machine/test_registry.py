"""The registry of a real Windows; elsewhere there is none to read."""

from __future__ import annotations

import sys

import pytest

if sys.platform == "win32":
    from rocsteady.doctor.machine import registry


@pytest.mark.skipif(sys.platform != "win32", reason="needs Windows: there is no registry here")
def test_keys_are_folders_and_values_are_files() -> None:
    if sys.platform == "win32":
        windows = "/HKLM/SOFTWARE/Microsoft/Windows NT/CurrentVersion"
        assert registry.holds(windows)
        assert registry.text(f"{windows}/CurrentBuild").isdecimal()
        assert "Fonts" in registry.names(windows)
        with pytest.raises(FileNotFoundError):
            registry.text(f"{windows}/no such value")
