"""Requests of ``watch``: taken up once, and only those of this user."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rocsteady.run.attempt.watch_requests import (
    REQUEST_FILE,
    RequestKind,
    put_request,
    take_request,
)


def test_a_request_is_taken_once(tmp_path: Path) -> None:
    put_request(tmp_path, RequestKind.PAUSE)

    assert take_request(tmp_path) is RequestKind.PAUSE
    assert take_request(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        '{"version": 1, "what": "kill", "at": NOW}',
        '{"version": 2, "what": "pause", "at": NOW}',
        '{"version": 1, "what": "pause", "at": 1}',
    ],
)
def test_what_is_no_request_is_removed(tmp_path: Path, content: str) -> None:
    (tmp_path / REQUEST_FILE).write_text(content.replace("NOW", f"{time.time():.0f}"))

    assert take_request(tmp_path) is None
    assert not (tmp_path / REQUEST_FILE).exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    put_request(tmp_path, RequestKind.PAUSE)
    (tmp_path / REQUEST_FILE).rename(tmp_path / "kept")
    (tmp_path / REQUEST_FILE).symlink_to("kept")

    assert take_request(tmp_path) is None
    assert (tmp_path / "kept").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no numbers of users")
def test_the_file_of_another_user_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_request(tmp_path, RequestKind.PAUSE)
    stranger = os.getuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)

    assert take_request(tmp_path) is None
