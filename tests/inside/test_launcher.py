"""A launcher: our rendezvous on one host, never over the user's own choice; a rank for each GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from rocsteady_train.inside.launcher import choose

from rocsteady.hangs.heartbeat_pages import read_applied

OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
SHARED = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}
OURS = {**OWN_STORE, "PET_RDZV_BACKEND": "rocsteady"}


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ("--nproc-per-node 2 train.py", OURS),
        ("--nnodes 1 --nproc-per-node 8 train.py --lr 0.1", OURS),
        ("--nnodes=1:1 train.py", OURS),
        ("train.py nnodes 2", OURS),
        ("--rdzv-backend c10d train.py", OWN_STORE),
        ("--rdzv_backend=static train.py", OWN_STORE),
        ("--standalone --nproc-per-node 2 train.py", OWN_STORE),
        ("--nnodes 2 --rdzv-endpoint host:29500 train.py", OWN_STORE),
        ("--nnodes=1:4 train.py", OWN_STORE),
        ("--node_rank 0 --master_addr host train.py", OWN_STORE),
    ],
)
def test_chosen_on_one_host_and_not_over_what_the_command_says(
    arguments: str, chosen: dict[str, str]
) -> None:
    environment: dict[str, str] = {}

    choose(arguments.split(), environment)

    assert environment == chosen


@pytest.mark.parametrize(
    "environment",
    [
        *({name: "2", **SHARED} for name in ("PET_NNODES", "PET_RDZV_BACKEND", "PET_STANDALONE")),
        {"TORCHELASTIC_RUN_ID": "1"},  # a rank
    ],
)
def test_not_over_what_a_variable_says_and_not_in_a_rank(environment: dict[str, str]) -> None:
    before = dict(environment)

    choose(["train.py"], environment)

    assert environment == before


if TYPE_CHECKING:
    from tests.inside.conftest import Inside


LAUNCHES = """
    import sys
    from torch.distributed.launcher.api import LaunchConfig
    ranks, hosts = map(int, sys.argv[1:])
    print(LaunchConfig(min_nodes=1, max_nodes=hosts, nproc_per_node=ranks).nproc_per_node)
"""


@pytest.mark.slow
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
