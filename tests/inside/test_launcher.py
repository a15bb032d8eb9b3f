"""rocsteady's rendezvous is chosen on one host, and never over the user's own choice."""

from __future__ import annotations

import pytest
from rocsteady_train.inside.launcher import choose

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
