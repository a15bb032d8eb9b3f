"""rocsteady's rendezvous is chosen on one host, and never over the user's own choice."""

from __future__ import annotations

import pytest
from rocsteady_train.inside.launcher import choose

OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
OURS = {**OWN_STORE, "PET_RDZV_BACKEND": "rocsteady"}


@pytest.mark.parametrize(
    "arguments",
    [
        "--nproc-per-node 2 train.py",
        "--nnodes 1 --nproc-per-node 8 train.py --lr 0.1",
        "--nnodes=1:1 train.py",
        "train.py nnodes 2",
    ],
)
def test_chosen_on_one_host(arguments: str) -> None:
    environment: dict[str, str] = {}

    choose(arguments.split(), environment)

    assert environment == OURS


@pytest.mark.parametrize(
    "arguments",
    [
        "--rdzv-backend c10d train.py",
        "--rdzv_backend=static train.py",
        "--standalone --nproc-per-node 2 train.py",
        "--nnodes 2 --rdzv-endpoint host:29500 train.py",
        "--nnodes=1:4 train.py",
        "--node_rank 0 --master_addr host train.py",
    ],
)
def test_not_over_what_the_command_says(arguments: str) -> None:
    environment: dict[str, str] = {}

    choose(arguments.split(), environment)

    assert environment == OWN_STORE


@pytest.mark.parametrize("name", ["PET_NNODES", "PET_RDZV_BACKEND", "PET_STANDALONE"])
def test_not_over_what_a_variable_says(name: str) -> None:
    environment = {name: "2", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}
    before = dict(environment)

    choose(["train.py"], environment)

    assert environment == before


def test_a_rank_chooses_nothing() -> None:
    environment = {"TORCHELASTIC_RUN_ID": "1"}

    choose(["train.py"], environment)

    assert environment == {"TORCHELASTIC_RUN_ID": "1"}
