"""Versions of any project are compared by their numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.versions import version_fits


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("6.8.0-45-generic", ">=6.8", True),
        ("6.8.0-45-generic", "<6.8", False),
        ("6.8.0-45", "==6.8.0", True),
        ("6.6.87.2-microsoft-standard-WSL2", ">=6.6,<6.7", True),
        ("4.18.0-553.el8_10.x86_64", "<5", True),
        ("6.18-rc3", ">=6.18", True),
        ("2.9.0.dev20250706", ">=2.9", True),
        ("2.9.0.dev20250706", "<2.9", False),
        ("2.12.0a0+git1234", "<2.12", False),
        ("2.5.1+rocm6.2", "==2.5.1", True),
        ("7.2.0.git7e1940d4", ">=7.2,<7.13", True),
        ("6.10", ">6.9", True),
        ("v6.1", ">=6", True),
        ("unknown", ">=0", False),
        ("", ">=0", False),
    ],
)
def test_versions_of_any_project(version: str, wanted: str, *, fits: bool) -> None:
    assert version_fits(version, wanted) is fits


@given(st.text(), st.integers(0, 99), st.integers(0, 99))
def test_any_text_is_a_version_or_not_and_never_a_crash(text: str, major: int, minor: int) -> None:
    at_least, below = f">={major}.{minor}", f"<{major}.{minor}"

    fits = [version_fits(text, wanted) for wanted in (at_least, below)]

    assert fits in ([False, False], [True, False], [False, True])


@given(st.integers(0, 99), st.integers(0, 99), st.text(alphabet="-.+abrc019", max_size=8))
def test_a_version_is_in_a_range_or_above_it_whatever_its_suffix(
    major: int, minor: int, suffix: str
) -> None:
    version = f"{major}.{minor}.0-{suffix}"

    assert version_fits(version, ">=2.9") is not version_fits(version, "<2.9")
