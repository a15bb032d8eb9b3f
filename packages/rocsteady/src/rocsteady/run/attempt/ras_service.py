"""What RCCL's RAS service says: which ranks have launched fewer collectives, and which are gone.

RCCL has the service of NCCL: the first process of a host listens on localhost:28028 (NCCL_RAS_ADDR)
and answers in text. The form of the conversation and of the text is that of ROCm/rccl at fde5325,
src/ras/client.cc and client_support.cc. Unconfirmed on AMD hardware.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence

from rocsteady.hangs.judgment.blame import CollectiveCount
from rocsteady.model import Value
from rocsteady.system import procfs

HOST, PORT = "127.0.0.1", 28028  # localhost, without asking a name server
ADDRESS = "NCCL_RAS_ADDR"
LIBRARIES = ("librccl", "libnccl")
PROTOCOL = 2
LIMIT = 4 * 1024 * 1024  # bytes of an answer
MAPS_LIMIT = 4 * 1024 * 1024  # bytes
_HEAD = re.compile(r"  Communicator ranks have different (\w+) operation counts")
_MANY = re.compile(r"  (\d+) ranks have (?:launched up to operation (\d+)|not launched any)")
_ONE = re.compile(r"  Rank (\d+) has (?:launched up to operation (\d+)|not launched any)")
_LISTED = re.compile(r"  Rank (\d+) --")


class RasAnswer(Value, frozen=True, kw_only=True):
    """The text of the service, or why there is none."""

    text: str = ""
    why_not: str = ""


def uses_collectives_library(pid: int) -> bool:
    """Return whether a process has RCCL or NCCL loaded: others have no such service."""
    try:
        maps = procfs.text(f"{procfs.PROC}/{pid}/maps", MAPS_LIMIT)
    except OSError:
        return False
    return any(name in maps for name in LIBRARIES)


def ask_ras(address: str = "", *, within: float) -> RasAnswer:
    """Ask the service for all that it knows; ``address`` is what NCCL_RAS_ADDR says."""
    host, _, port = address.rpartition(":")
    host = HOST if host in ("", "localhost") else host.strip("[]")
    deadline = time.monotonic() + within
    try:
        where = (host, int(port) if port else PORT)
        with socket.create_connection(where, timeout=within) as connection:
            heard = _say(connection, f"CLIENT PROTOCOL {PROTOCOL}\n", deadline)
            if not heard.upper().startswith("SERVER PROTOCOL "):
                return RasAnswer(why_not=f"not a RAS service at {where[0]}:{where[1]}")
            _say(connection, f"TIMEOUT {max(1, int(within / 2))}\n", deadline)
            return RasAnswer(text=_say(connection, "VERBOSE STATUS\n", deadline, whole=True))
    except (OSError, ValueError, OverflowError) as error:
        return RasAnswer(why_not=str(error) or type(error).__name__)


def launched(text: str, world: int) -> dict[int, CollectiveCount]:
    """Return the last collective of each rank, from a communicator of all ranks that has lagged."""
    for section in re.split(r"^#", text, flags=re.MULTILINE)[1:]:
        for part in re.split(r"^(?=  Communicator ranks)", section, flags=re.MULTILINE):
            found = _counts(part.splitlines(), world)
            if found:
                return found
    return {}


def _counts(lines: Sequence[str], world: int) -> dict[int, CollectiveCount]:
    head = _HEAD.match(lines[0]) if lines else None
    if head is None:
        return {}
    name, counts = head[1], {}
    unnamed: list[tuple[int, int]] = []  # ranks that are only counted: how many, and their count
    for line in lines[1:]:
        many, one, listed = _MANY.match(line), _ONE.match(line), _LISTED.match(line)
        if many:
            unnamed.append((int(many[1]), int(many[2] or 0)))
        elif one:
            counts[int(one[1])] = int(one[2] or 0)
        elif listed and unnamed:
            number, count = unnamed[-1]
            counts[int(listed[1])] = count
            unnamed[-1] = (number - 1, count)
    left = [(number, count) for number, count in unnamed if number > 0]
    if len(counts) + sum(number for number, _ in left) != world or len(left) > 1:
        return {}  # a communicator of some ranks, whose numbers mean others
    usual = left[0][1] if left else 0
    return {rank: CollectiveCount(counts.get(rank, usual), name) for rank in range(world)}


def _say(connection: socket.socket, line: str, deadline: float, *, whole: bool = False) -> str:
    """Send a line and return the answer: a line, or all until the other side closes."""
    connection.sendall(line.encode("ascii"))
    heard = b""
    while len(heard) < LIMIT and (whole or not heard.endswith(b"\n")):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the RAS service did not answer in time")
        connection.settimeout(left)
        piece = connection.recv(65536)
        if not piece:
            break
        heard += piece
    return heard.decode("utf-8", "replace")
