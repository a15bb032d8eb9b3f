"""The rendezvous for very many hosts: real agents' parts in threads, around a real store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from supervised import Project

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

import rocsteady

pytestmark = pytest.mark.slow
WITHIN = 200.0
HOSTS = 16
AGENTS = """
    import signal, socket, sys, threading, time
    from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousParameters
    from rocsteady.integrations.counter_rendezvous import CounterRendezvous

    hosts = int(sys.argv[1])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def agent(place, job="job"):
        return CounterRendezvous(RendezvousParameters(
            "c10d", f"127.0.0.1:{port}", job, hosts, hosts, local_addr="127.0.0.1",
            is_host="1" if place == 0 else "0", join_timeout=60,
        ))

    def arrive(places):
        threads = [threading.Thread(target=met, args=(place,)) for place in places]
        for thread in threads:
            thread.start()
        return threads

    def met(place):
        found[place] = agents[place].next_rendezvous()

    def show(what):
        ranks = sorted(each.rank for each in found.values())
        ports = {each.bootstrap_store_info.master_port for each in found.values()}
        told = sum(each.num_nodes_waiting() for each in agents)
        print(what, ranks == list(range(hosts)), len(ports), "told", told, flush=True)

    agents, found = [agent(place) for place in range(hosts)], {}
    for thread in arrive(range(hosts)):
        thread.join()
    show("first")
    early = arrive([3])  # its ranks have failed: the others are told, once, and follow
    deadline = time.monotonic() + 30
    while sum(each.num_nodes_waiting() for each in agents) < hosts and time.monotonic() < deadline:
        time.sleep(0.1)
    show("failed")
    for thread in early + arrive(place for place in range(hosts) if place != 3):
        thread.join()
    show("second")
    for thread in arrive(range(hosts)):  # all at once
        thread.join()
    show("third")
    lost, agents[5] = agents[5], agent(5)  # a host that was lost and is started again
    late = arrive([5])
    time.sleep(3)  # it waits until the others have noticed, and so does one too many
    show("late")
    agents[5].shutdown()  # which has no place yet, and so ends nothing
    print("open", not lost.is_closed())
    for thread in late + arrive(place for place in range(hosts) if place != 5):
        thread.join()
    show("fourth")
    def interrupt(*_):
        raise InterruptedError
    signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(2)
    began = time.monotonic()
    try:
        agent(1, "another job").next_rendezvous()
    except InterruptedError:
        print("interrupted", time.monotonic() - began < 20)
    agents[1].set_closed()
    try:
        agents[2].next_rendezvous()
    except RendezvousClosedError:
        print("closed")
    print({each._generation for each in agents})
"""


def test_agents_meet_are_told_that_one_left_and_meet_again(
    project: Project, torch_python: str
) -> None:
    done = subprocess.run(
        [torch_python, project.script(AGENTS), str(HOSTS)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(rocsteady.__file__).parents[1])},
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN,
    )

    assert done.stdout.splitlines() == [
        "first True 1 told 0",
        f"failed True 1 told {HOSTS}",
        "second True 1 told 0",
        "third True 1 told 0",
        "late True 1 told 0",
        "open True",
        "fourth True 1 told 0",
        "interrupted True",
        "closed",
        "{3}",
    ], done.stderr
    assert done.returncode == 0  # the listeners have ended before the store
