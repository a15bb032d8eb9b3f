"""A link that is cut: the kernel sends again what was not acknowledged, and that is a way out."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from host_faults import Job, Network, network, why_not

from rocsteady.hangs.proof.holders import Descriptors

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]
WITHIN = 20.0
PORT = 29600
SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("up", flush=True)
    connection, _ = server.accept()
    while connection.recv(1): pass
"""
CLIENT = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("up", flush=True)
for line in sys.stdin: connection.sendall(b"x")
"""


@pytest.fixture
def net() -> Iterator[Network]:
    with network(2) as made:
        yield made


def started(net: Network, host: int, text: str) -> subprocess.Popen[bytes]:
    words = ("ip", "netns", "exec", net.name(host), sys.executable, "-c", text)
    process = subprocess.Popen(
        [*words, net.address(1), str(PORT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def becomes(count: int, pid: int) -> bool:
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        if Descriptors([pid]).unanswered(pid) == count:
            return True
        time.sleep(0.1)
    return False


def test_data_that_is_sent_again_is_seen_until_it_arrives(net: Network) -> None:
    with started(net, 1, SERVER) as server, started(net, 2, CLIENT) as client:
        try:
            assert client.stdin is not None
            assert becomes(0, client.pid)
            net.cut(1)
            client.stdin.write(b"\n")
            client.stdin.flush()
            assert becomes(1, client.pid)
            net.join(1)
            assert becomes(0, client.pid)
        finally:
            client.kill()
            server.kill()


def test_a_link_that_is_cut_for_54_seconds_costs_nothing(start: Callable[..., Job]) -> None:
    job = start(2, 400)
    assert job.until(lambda: len(job.told("saved")) > 1), job.all_said()

    job.net.cut(2)
    time.sleep(54.0)
    job.net.join(2)

    assert set(job.codes().values()) == {0}, job.all_said()
    assert job.generations() == 1
