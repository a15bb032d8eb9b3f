"""A launcher starts one rank for each GPU that is left, and is told of only where it has more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rocsteady.hangs.heartbeat_pages import read_applied

if TYPE_CHECKING:
    from tests.inside.conftest import Inside

pytestmark = pytest.mark.slow

LAUNCHES = """
    import sys
    from torch.distributed.launcher.api import LaunchConfig
    ranks, hosts = map(int, sys.argv[1:])
    print(LaunchConfig(min_nodes=1, max_nodes=hosts, nproc_per_node=ranks).nproc_per_node)
"""


@pytest.mark.parametrize(
    ("ranks", "hosts", "started", "told"),
    [
        (2, 1, 1, [("gpus", "applied", "2 ranks -> 1")]),
        (1, 1, 1, []),
        (2, 3, 2, [("gpus", "refused", "there are ranks on other hosts")]),
    ],
)
def test_ranks_of_one_gpu(  # noqa: PLR0913, PLR0917 - the case
    inside: Inside,
    torch_python: str,
    ranks: int,
    hosts: int,
    started: int,
    told: list[tuple[str, str, str]],
) -> None:
    words = (torch_python, inside.script(LAUNCHES), str(ranks), str(hosts))

    done = inside.run(*words, ROCSTEADY_STRATEGY=json.dumps({"version": 1, "gpus": [0]}))

    assert (done.code, inside.notes()) == (0, ""), done.err.decode()
    assert int(done.out) == started
    outcomes = [
        (it.setting, it.outcome.value, it.why) for it in read_applied(inside.injection.pages)
    ]
    assert outcomes == told
