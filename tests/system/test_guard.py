"""The guard ends what a dead supervisor left, and nothing after an orderly end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

if os.name == "nt":
    pytest.skip("the guard is of POSIX", allow_module_level=True)
assert sys.platform != "win32"  # tells mypy the same

from rocsteady.system import guard  # noqa: E402 - asserts the same
from rocsteady.system.keeper import RUN, Family, process_snapshot  # noqa: E402 - the same

SUPERVISOR = 2**22 + 1  # above every pid that Linux gives
NAME = f"guarded-{os.getpid()}"
AT_MOST = 10.0  # seconds, on a busy machine


@pytest.fixture
def left() -> Iterator[subprocess.Popen[bytes]]:
    """Leave a process with the variable of a run."""
    marked = {**os.environ, RUN: f"{NAME}-{SUPERVISOR}-1"}
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env=marked, start_new_session=True
    ) as child:
        yield child
        child.kill()


@pytest.mark.parametrize(("byte", "ends"), [(b".", False), (b"", True)])
def test_the_guard_acts_only_if_nobody_told_it_of_an_orderly_end(
    left: subprocess.Popen[bytes], byte: bytes, *, ends: bool
) -> None:
    reader, writer = os.pipe()
    words = (str(reader), NAME, str(SUPERVISOR), "0")
    with subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, *words], pass_fds=(reader,)
    ) as guarding:
        os.close(reader)
        os.write(writer, byte)
        os.close(writer)
        assert guarding.wait(3 * AT_MOST) == 0

    deadline = time.monotonic() + AT_MOST
    while ends and left.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (left.poll() is not None) is ends


def test_a_child_of_the_keeper_is_seen_without_a_look_at_everyone(
    left: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, others = Family(os.getpid(), "none"), Family(SUPERVISOR, "none")
    assert others.one(left.pid) == {}  # a stranger that has the number now is not signalled
    monkeypatch.delattr(Family, "members")

    assert ours.one(left.pid) == {left.pid: process_snapshot(left.pid)}
