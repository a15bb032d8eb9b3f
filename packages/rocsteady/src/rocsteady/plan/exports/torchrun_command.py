"""A command that is torchrun's: on how many hosts it runs, and how they meet elsewhere.

Where ranks meet is up to the scheduler, so a file for it leaves out what the command says of that,
and sets variables: every option of torchrun has one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rocsteady.run.job.stages import PYTHON

TORCHRUN = re.compile(r"(.*[/\\])?torchrun(\.exe)?")
MODULE = ("-m", "torch.distributed.run")
FLAGS = frozenset({"standalone", "no_python", "m", "module", "run_path"})  # without a value
MEETING = frozenset(
    {"rdzv_backend", "rdzv_endpoint", "rdzv_id", "master_addr", "master_port", "node_rank"}
    | {"standalone", "local_addr"}
)


class HostCount(NamedTuple):
    least: int
    most: int


def torchrun_hosts(command: tuple[str, ...]) -> HostCount | None:
    start = _start(command)
    if start is None:
        return None
    least, _, most = _last(command[start:], "nnodes").partition(":")
    numbers = (least, most or least)
    return HostCount(*map(int, numbers if all(map(str.isdecimal, numbers)) else (1, 1)))


def ranks_per_host(command: tuple[str, ...]) -> int | None:
    """Return how many ranks a torchrun starts on each host, if it says so by a number."""
    value = ranks_option(command)
    return int(value) if value.isdecimal() else None


def ranks_option(command: tuple[str, ...]) -> str:
    """Return how a torchrun is told the ranks of a host: "8", "gpu" or "auto"; "" if it is not."""
    start = _start(command)
    return _last(command[start:], "nproc_per_node") if start is not None else ""


def several_hosts(command: tuple[str, ...]) -> bool:
    hosts = torchrun_hosts(command)
    return hosts is not None and hosts.most > 1


def without_meeting(command: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out what a torchrun on several hosts says of where they meet."""
    start = _start(command)
    if start is None or not several_hosts(command):
        return command
    left_out = {
        start + place
        for name, _, places in _options(command[start:])
        if name in MEETING
        for place in places
    }
    return tuple(word for place, word in enumerate(command) if place not in left_out)


def _start(command: tuple[str, ...]) -> int | None:
    if command and TORCHRUN.fullmatch(command[0]):
        return 1
    if command and PYTHON.fullmatch(command[0]) and command[1:3] == MODULE:
        return 3
    return None


def _last(words: tuple[str, ...], wanted: str) -> str:
    """Return the value of an option, the last if it is given twice, as argparse does."""
    return ([value for name, value, _ in _options(words) if name == wanted] or [""])[-1]


def _options(words: tuple[str, ...]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return torchrun's options up to the script: name, value, and places of both."""
    found = []
    place = 0
    while place < len(words) and words[place].startswith("-"):
        name, given, value = words[place].lstrip("-").partition("=")
        name = name.replace("-", "_")
        places: tuple[int, ...] = (place,)
        if not given and name not in FLAGS:
            value = "".join(words[place + 1 : place + 2])
            places = (place, place + 1)
        found.append((name, value, places))
        place = places[-1] + 1
    return found
