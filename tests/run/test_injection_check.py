"""Where our part cannot get in, it is said, once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rocsteady.run.attempt.injection import (
    TORCH_POLL_INTERVAL,
    HeartbeatCheck,
)
from rocsteady.run.telling.announcer import Announcer


@pytest.fixture
def said() -> list[str]:
    return []


def unseen(said: list[str], *, pages: bool = True) -> HeartbeatCheck:
    announcer = Announcer()
    announcer.through = said.append
    return HeartbeatCheck(announcer, pages=Path("/none") if pages else None, began=0.0)


@pytest.mark.skipif(sys.platform == "win32", reason="reads /proc")
def test_a_process_with_torch_and_without_a_page_is_named(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = {"/proc/7/maps": b"7f00 r-xp /lib/libc.so.6", "/proc/8/maps": b"/x/libtorch_cpu.so"}
    monkeypatch.setattr(
        "rocsteady.run.attempt.injection.procfs.read", lambda path, _limit: maps[path]
    )
    watching = unseen(said)

    watching.poll(lambda: (7, 8), TORCH_POLL_INTERVAL - 1, beats=False)
    watching.poll(lambda: (7,), TORCH_POLL_INTERVAL, beats=False)
    watching.poll(lambda: (7, 8), 2 * TORCH_POLL_INTERVAL, beats=True)
    assert said == []
    watching.poll(lambda: (7, 8), 3 * TORCH_POLL_INTERVAL, beats=False)
    watching.poll(lambda: (7, 8), 4 * TORCH_POLL_INTERVAL, beats=False)

    (line,) = said
    assert "process 8 uses torch" in line
