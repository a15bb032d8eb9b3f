"""RCCL's RAS service, against a server that speaks its protocol as the source has it.

Lines and their order are those of ROCm/rccl at fde5325, src/ras/client_support.cc. No test has
spoken to a real RCCL yet.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from rocsteady.hangs.judgment.blame import CollectiveCount
from rocsteady.run.attempt.ras_service import ask_ras, launched

HEAD = """RCCL version 2.22.3 compiled with ROCm 6.4.0.0-42
HIP runtime version 60400, amdgpu driver version 60400

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          8            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         8         8         8   RUNNING MISMATCH

Errors
======

Warnings
========

"""
LAGS = """#0-0 (59d89d3ad7ea5d2c) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 412
  Rank 5 has launched up to operation 411 -- GPU 5 managed by process 4711 on node 10.0.0.7

"""
WITHIN = 2.0
Speaks = Callable[[socket.socket], None]


@pytest.fixture
def server() -> Iterator[Callable[[Speaks], str]]:
    """Return what listens on a port of this machine and speaks with one client."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serves(speaks: Speaks) -> str:
        def serve() -> None:
            client, _ = listener.accept()
            with client:
                speaks(client)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return f"localhost:{listener.getsockname()[1]}"

    yield serves
    for thread in threads:
        thread.join(10.0)
    listener.close()


def conversation(answer: str, heard: list[str]) -> Speaks:
    """Speak as the service does: lines are taken one by one, and the status ends with a close."""

    def speaks(client: socket.socket) -> None:
        with client.makefile("rw", encoding="ascii", newline="\n") as stream:
            for line in stream:
                heard.append(line.strip())
                if line.upper().startswith("CLIENT PROTOCOL "):
                    stream.write("SERVER PROTOCOL 2\n")
                elif line.upper().startswith("TIMEOUT "):
                    stream.write("OK\n")
                elif line.strip().upper() in ("STATUS", "VERBOSE STATUS"):
                    stream.write(answer)
                    return
                else:
                    stream.write(f"ERROR: Unknown command {line.strip()}\n")
                stream.flush()

    return speaks


def test_the_rank_that_lags_is_read_from_the_answer(server: Callable[[Speaks], str]) -> None:
    heard: list[str] = []

    answer = ask_ras(server(conversation(HEAD + LAGS, heard)), within=WITHIN)

    assert heard == ["CLIENT PROTOCOL 2", "TIMEOUT 1", "VERBOSE STATUS"]
    assert answer.text == HEAD + LAGS
    counts = launched(answer.text, 8)
    assert counts == {
        rank: CollectiveCount(411 if rank == 5 else 412, "AllReduce") for rank in range(8)
    }


def test_a_service_that_does_not_answer_costs_no_more_than_its_time(
    server: Callable[[Speaks], str],
) -> None:
    done = threading.Event()

    def says_nothing(_: socket.socket) -> None:
        done.wait(30.0)

    address = server(says_nothing)

    began = time.monotonic()
    answer = ask_ras(address, within=0.5)
    took = time.monotonic() - began
    done.set()

    assert answer.text == ""
    assert answer.why_not
    assert took < 10.0


def test_another_service_on_the_port_is_left_alone(server: Callable[[Speaks], str]) -> None:
    heard: list[bytes] = []

    def web(client: socket.socket) -> None:
        heard.append(client.recv(1000))
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n")

    address = server(web)

    assert (
        ask_ras(address, within=WITHIN).why_not == f"not a RAS service at 127.0.0.1:{address[10:]}"
    )
    assert heard == [b"CLIENT PROTOCOL 2\n"]


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    assert "refused" in ask_ras(f"127.0.0.1:{port}", within=WITHIN).why_not.lower()


@pytest.mark.parametrize("address", ["nonsense:port", "127.0.0.1:99999999", ":::", "[::1]:-1"])
def test_an_address_that_is_none_is_no_crash(address: str) -> None:
    assert ask_ras(address, within=0.2).text == ""


@pytest.mark.parametrize(
    ("text", "world"),
    [
        ("", 8),
        (HEAD, 8),
        (LAGS, 16),  # a communicator of some of the ranks
        (LAGS.replace("7 ranks", "3 ranks"), 8),
        (LAGS.replace("operation 411", "operation"), 8),
    ],
)
def test_what_does_not_cover_all_ranks_says_nothing(text: str, world: int) -> None:
    assert launched(text, world) == {}


def test_ranks_that_are_listed_below_their_number() -> None:
    text = """#0-0 (59d89d3ad7ea5d2c) MISMATCH
  Communicator ranks have different Broadcast operation counts
  6 ranks have launched up to operation 9
  2 ranks have not launched any operations
  Rank 2 -- GPU 2 managed by process 11 on node 10.0.0.7
  Rank 3 -- [process information not found]
"""

    assert launched(text, 8) == {
        rank: CollectiveCount(0 if rank in (2, 3) else 9, "Broadcast") for rank in range(8)
    }
