"""A node that holds up the others again and again is proposed to be left out."""

from __future__ import annotations

import pytest

from rocsteady.model import Blame, RankRecord, Sign
from rocsteady.run.hosts.blamed_nodes import BlamedNodes, node_name
from rocsteady.run.hosts.job_verdict import HostPart, Part

SLURM = {"SLURM_JOB_ID": "4711"}


def hosts(*nodes: str) -> list[HostPart]:
    return [
        HostPart(host=number, node=node, part=Part.PROVEN, world=len(nodes), ranks=(number,))
        for number, node in enumerate(nodes)
    ]


def blame(*ranks: int) -> Blame:
    records = tuple(RankRecord(rank=rank, host=str(rank)) for rank in ranks)
    return Blame(sign=Sign.STEP, why="it is behind", ranks=records, number=len(ranks), compared=3)


JOB = hosts("node1", "node042", "node3")


def test_once_is_not_enough_and_the_counts_are_told() -> None:
    nodes = BlamedNodes(SLURM)

    first, other, second = (nodes.count(JOB, blame(rank)) for rank in (1, 2, 1))

    assert (first, other) == ("", "")
    assert "2 of 3 hangs" in second
    assert "--exclude=node042" in second
    assert "JobId=4711 ExcNodeList=node042" in second


def test_kubernetes_taints_and_others_are_told_in_words() -> None:
    for environment, word in (({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubectl"), ({}, "hosts")):
        nodes = BlamedNodes(environment)
        nodes.count(JOB, blame(1))
        assert word in nodes.count(JOB, blame(1))


@pytest.mark.parametrize(
    ("job", "ranks"),
    [
        (JOB, ()),  # nobody stands out
        (JOB, (0, 1)),  # ranks of several nodes do
        (hosts("node042"), (0,)),  # there is no other node
        (hosts("node1", "x; rm -rf /"), (1,)),  # not a name
        (hosts("node1", ""), (1,)),  # a host of an older version
    ],
)
def test_nothing_is_proposed_without_one_node_that_stands_out(
    job: list[HostPart], ranks: tuple[int, ...]
) -> None:
    nodes = BlamedNodes(SLURM)

    assert [nodes.count(job, blame(*ranks)) for _ in range(3)] == ["", "", ""]


def test_a_node_has_the_name_that_the_scheduler_uses() -> None:
    assert node_name({"SLURMD_NODENAME": "node042"}) == "node042"
    assert node_name({"SLURMD_NODENAME": "node042; ls"}) == ""
    assert node_name({})
