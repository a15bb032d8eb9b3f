"""Ranks that look stuck and are not: none of them is stopped, and the others wait."""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from rank_faults import Torchrun

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "victims" / "rank_look_alikes.py"
SECONDS = float(os.environ.get("ROCSTEADY_LOOK_ALIKE_SECONDS", "45"))
WITHIN = 600.0  # seconds, on a machine that has other things to do
PIECES = 4
RANKS = {"uneven": 4}
JOBS = (
    "uneven", "validates", "downloads", "is slow", "compiles", "saves", "loader",
    "monitored barrier", "objects", "scatters", "pipeline", "spawns", "calls", "file lock",
    "saves beside", "fsdp", "no sync", "unused", "workers", "starts late",
)  # fmt: skip


@pytest.fixture
def slow_url() -> Iterator[str]:
    """Return an address of this machine that answers a little at a time."""

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(1000 * PIECES))
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(PIECES):
                    time.sleep(SECONDS / PIECES)
                    self.wfile.write(bytes(1000))
                    self.wfile.flush()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


def stop_and_continue(torchrun: Torchrun, rank: int) -> None:
    """Let a rank run for a second at a time, as on a host that has other things to do."""
    end = time.monotonic() + SECONDS
    with contextlib.suppress(ProcessLookupError):
        pid = torchrun.pid(rank)
        while time.monotonic() < end and torchrun.process.poll() is None:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(2.0)
            os.kill(pid, signal.SIGCONT)
            time.sleep(1.0)


@pytest.mark.parametrize("what", JOBS)
def test_a_rank_that_only_takes_long_is_left_alone(
    what: str, tmp_path: Path, ranks_python: str, slow_url: str
) -> None:
    class LookAlike(Torchrun):
        ranks = RANKS.get(what, 2)
        script = (SCRIPT, what, SECONDS, slow_url)

    variables = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    torchrun = LookAlike(ranks_python, tmp_path / "run", 0, **variables)
    try:
        if what == "is slow":
            assert torchrun.until(lambda: torchrun.generations() == 1, WITHIN), torchrun.said()
            stop_and_continue(torchrun, 1)
        code = torchrun.process.wait(WITHIN)
    finally:
        torchrun.close()

    said = torchrun.said()
    assert code == 0, said
    assert "rocsteady: hung" not in said
    assert torchrun.generations() == 1
    assert len(torchrun.told("done")) == torchrun.ranks
