"""The watcher's side of the conversation with torchrun's agent, before a generation of ranks."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from rocsteady.errors import LauncherError, NotNeededError
from rocsteady.run.engines.torchrun import AgentLink, RankGroup, first_failure
from rocsteady.run.hosts.messages import HostProposal, Weight
from rocsteady.system.child import Start
from rocsteady.system.child_end import Exit

MINE = HostProposal(weight=Weight.PERHAPS, why="mine")
THEIRS = {"why": "theirs"}


class Agent:
    """The agent's end."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def tell(self, **message: object) -> None:
        self.end.sendall(json.dumps(message).encode() + b"\n")

    def heard(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.end.recv(65536).splitlines()]


@pytest.fixture
def conversation() -> Iterator[tuple[Agent, AgentLink]]:
    ours, theirs = socket.socketpair()
    link = AgentLink(theirs.detach(), {}, several_hosts=True)
    link.pid = os.getpid()  # not who started the tests, whose other children would be its ranks
    with ours:
        ours.settimeout(5.0)
        yield Agent(ours), link
        link.end(0)


def last(_: HostProposal, others: Sequence[msgspec.Raw]) -> HostProposal:
    return msgspec.json.decode(others[-1], type=HostProposal)


def proposed(host: int) -> dict[str, Any]:
    return {"proposal": as_json(msgspec.structs.replace(MINE, host=host))}


def as_json(proposal: HostProposal) -> object:
    return json.loads(msgspec.json.encode(proposal))


def decided(link: AgentLink) -> object:
    answer = link.agree(MINE, last)
    return None if answer is None else msgspec.json.decode(answer)


def test_a_host_that_follows_hears_the_decision(conversation: tuple[Agent, AgentLink]) -> None:
    agent, link = conversation
    agent.tell(stopping=True)
    agent.tell(generation=True, host=1)
    agent.tell(decision=THEIRS)

    assert decided(link) == THEIRS
    assert agent.heard() == [proposed(1)]


def test_a_host_that_leads_chooses_among_all(conversation: tuple[Agent, AgentLink]) -> None:
    agent, link = conversation
    agent.tell(generation=True, host=0)
    agent.tell(proposals=[THEIRS])
    agent.tell(decision=THEIRS)

    assert decided(link) == THEIRS
    chosen = as_json(msgspec.convert(THEIRS, HostProposal))
    assert agent.heard() == [proposed(0), {"decision": chosen}]


def test_hosts_that_meet_again_are_told_again(conversation: tuple[Agent, AgentLink]) -> None:
    agent, link = conversation
    agent.tell(generation=True, host=1)
    agent.tell(generation=True, host=0)
    agent.tell(decision={})

    assert decided(link) == {}
    assert agent.heard() == [proposed(1), proposed(0)]


def test_without_another_generation_nothing_is_decided(
    conversation: tuple[Agent, AgentLink],
) -> None:
    agent, link = conversation
    agent.tell(over=False)

    assert link.agree(MINE, last) is None
    with pytest.raises(LauncherError):
        link.start(Start(command=(), environment={}, folder=Path(), run_id="run", log=Path()))


@pytest.mark.parametrize(
    ("failed", "ended"),
    [
        ({"rank": 1, "code": 3}, Exit(code=3, rank=1)),
        ({"rank": 5, "code": -9}, Exit(signal=9, rank=5)),
        (None, Exit(code=1)),
    ],
)
def test_the_code_is_that_of_the_rank_that_failed_first_as_torchrun_saw_it(
    conversation: tuple[Agent, AgentLink], failed: object, ended: Exit
) -> None:
    agent, link = conversation
    group = RankGroup(link, "none")

    agent.tell(over=False, failed=failed)

    assert group.wait(5.0) == ended


@pytest.mark.parametrize(
    ("unread", "code", "ended"),
    [
        ([1, 0], 3, Exit(code=3, rank=1)),
        ([1], -9, Exit(signal=9, rank=1)),
        ([], 3, Exit(code=7, rank=0)),  # all were read here
    ],
)
def test_what_nobody_could_read_in_time_is_told_by_torchrun(
    conversation: tuple[Agent, AgentLink], unread: list[int | None], code: int, ended: Exit
) -> None:
    agent, link = conversation
    group = RankGroup(link, "none")
    group._ended, group._unread = [Exit(code=7, rank=0)], unread
    group._numbers = {4711: 1}

    agent.tell(reaped={"pid": 4711, "code": code})
    agent.tell(generation=True)

    assert group.wait(5.0) == ended


def test_a_spare_that_was_not_needed_is_no_failure(
    conversation: tuple[Agent, AgentLink],
) -> None:
    agent, link = conversation
    agent.tell(over=True, spare=True)

    with pytest.raises(NotNeededError):
        link.agree(MINE, last)


def test_ranks_of_a_host_whose_place_was_taken_are_replaced_and_not_done(
    conversation: tuple[Agent, AgentLink],
) -> None:
    agent, link = conversation
    group = RankGroup(link, "none")

    agent.tell(stopping=True)
    agent.tell(over=True, spare=True)

    assert group.wait(5.0) == Exit(replaced=True)
    with pytest.raises(NotNeededError):
        link.agree(MINE, last)


def test_ranks_that_torchrun_terminated_do_not_count_as_the_first_to_fail() -> None:
    terminated, by_shell = Exit(signal=15, rank=0), Exit(code=143, rank=2)

    assert first_failure([terminated, by_shell, Exit(code=3, rank=1)], []).rank == 1
    assert first_failure([terminated, by_shell], [4]) == Exit(code=1, rank=4)
    assert first_failure([terminated], [4, 5]) == Exit(code=1)  # one of the two
    assert first_failure([terminated, by_shell], []) == terminated
    assert first_failure([], []) == Exit(code=1)
