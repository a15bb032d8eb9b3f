"""Where our part cannot get in, it is said, once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rocsteady.run.attempt.injection import (
    TORCH_POLL_INTERVAL,
    HeartbeatCheck,
    option_against_hooks,
)
from rocsteady.run.telling.announcer import Announcer


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("python train.py", ""),
        ("python -I train.py", "-I"),
        ("/usr/bin/python3.12 -E train.py", "-E"),
        ("python -uS train.py", "-S"),
        ("python -W ignore -X dev -I -m train", "-I"),
        ("python -Wignore::E -Xfaulthandler train.py", ""),
        ("python -m train -I", ""),
        ("python -c pass -S", ""),
        ("python train.py -E", ""),
        ("python - -E", ""),
        ("bash -E train.sh", ""),
        ("pythonic -I", ""),
        ("python", ""),
    ],
)
def test_an_option_of_python_is_told_from_those_of_the_script(command: str, option: str) -> None:
    assert option_against_hooks(command.split()) == option


@pytest.fixture
def said() -> list[str]:
    return []


def unseen(said: list[str], *, pages: bool = True) -> HeartbeatCheck:
    announcer = Announcer()
    announcer.through = said.append
    return HeartbeatCheck(announcer, pages=Path("/none") if pages else None, began=0.0)


def test_it_is_said_before_the_start_and_not_again(said: list[str]) -> None:
    watching = unseen(said)

    watching.starts(["/a/python", "-I", "train.py"])
    watching.poll(lambda: pytest.fail("looked"), TORCH_POLL_INTERVAL, beats=False)

    start = "rocsteady: python -I prevents rocsteady's hooks from loading: "
    assert said == [f"{start}steps cannot be observed."]


def test_without_a_folder_for_pages_another_line_has_said_it(said: list[str]) -> None:
    unseen(said, pages=False).starts(["python", "-I", "train.py"])

    assert said == []


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
