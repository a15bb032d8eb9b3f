"""A session of its own for every child, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

if os.name == "nt":
    pytest.skip("needs Linux", allow_module_level=True)
assert sys.platform != "win32"  # tells mypy the same

from rocsteady.host import posix  # noqa: E402 - asserts the same


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], **posix.OWN_SESSION
    )


def test_a_child_leads_a_session_of_its_own_and_is_killed_with_it() -> None:
    child = sleeper()

    assert os.getsid(child.pid) == child.pid
    posix.kill_session(child.pid)

    assert child.wait(10) == -signal.SIGKILL


def test_looking_whether_a_child_is_over_does_not_reap_it() -> None:
    child = sleeper()

    assert not posix.has_ended(child)
    child.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while not posix.has_ended(child) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert posix.has_ended(child)
    assert child.wait(0) == -signal.SIGKILL


def test_a_session_that_is_gone_is_fine() -> None:
    child = sleeper()
    child.kill()
    child.wait(10)

    posix.kill_session(child.pid)
