"""Where the time of a step goes."""

from __future__ import annotations

import pytest
from builders import pace, tried

from rocsteady.model import LoaderFacts
from rocsteady.plan.bottleneck import limits, own_share

OWN = ("way (sim/simulation.py:84)", "Simulation.step (sim/simulation.py:58)", "main (train.py:9)")
TORCH = ("Linear.forward (site-packages/torch/nn/modules/linear.py:134)", "main (train.py:9)")
RANKS = ("barrier (site-packages/torch/distributed/c10d.py:1)", "main (train.py:9)")


def loaders(workers: int) -> LoaderFacts:
    return LoaderFacts(loaders=1, workers=workers, context="fork", pickles=True, main_guarded=True)


def test_a_loader_without_workers_is_replayed_with_some() -> None:
    slow = tried(pace=pace(1.0, data=0.5, compute=0.3, backward=0.2), stacks=(TORCH,) * 9)

    first, second = limits(slow, on_gpu=True, loader=loaders(0), cores=4)

    assert first.part == "data"
    assert first.share == pytest.approx(0.5)
    assert first.best == "4 loader workers"
    assert first.gain == pytest.approx(2.0)  # a step then takes as long as the training part
    assert second.part == "compute"


def test_workers_that_are_the_limit_get_more_of_them() -> None:
    slow = tried(pace=pace(1.0, data=0.8, compute=0.2))

    first, _ = limits(slow, on_gpu=True, loader=loaders(2), cores=4)

    assert first.best == "4 loader workers, not 2"
    assert first.gain == pytest.approx(2.0)


@pytest.mark.parametrize(("workers", "cores"), [(2, 2), (4, 2), (16, 16)])
def test_more_workers_than_cores_are_not_advised(workers: int, cores: int) -> None:
    slow = tried(pace=pace(1.0, data=0.8, compute=0.2))

    first, _ = limits(slow, on_gpu=True, loader=loaders(workers), cores=cores)

    assert "workers" not in first.best


def test_workers_that_hang_are_not_made_more() -> None:
    slow = tried(pace=pace(1.0, data=0.8, compute=0.2))

    first, _ = limits(slow, on_gpu=True, loader=loaders(2), cores=0)

    assert first.best == "faster storage, or less work per sample"


def test_the_scripts_own_python_is_told_from_torch_by_stacks() -> None:
    slow = tried(pace=pace(1.0, compute=1.0), stacks=(OWN,) * 7 + (TORCH,) * 3)

    first, second = limits(slow, on_gpu=True, loader=None, cores=4)

    assert first.part == "simulation"
    assert first.share == pytest.approx(0.7)
    assert first.where == "Simulation.step (sim/simulation.py:58)"
    assert first.gain == pytest.approx(1 / 0.7)
    assert second.part == "compute"
    assert second.share == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("own", "elsewhere", "shown"),
    [
        (0, 0.4, ("compute", 0.6)),  # a torch call at each look: no own code in the steps either
        (2, 0.05, ("own code", 0.6 * (0.15 + 0.2) / 2 / 0.95)),  # which differs little
        (4, 0.4, ("compute and own code", 0.6)),  # all of it may be of the validation, or none
    ],
)
def test_looks_at_a_validation_are_not_counted_as_steps(
    own: int, elsewhere: float, shown: tuple[str, float]
) -> None:
    own_code = ("prepare (train.py:40)", "main (train.py:9)")
    slow = tried(
        pace=pace(1.0, compute=0.6, evaluate=0.4),
        stacks=(own_code,) * own + (TORCH,) * (10 - own),
        elsewhere=elsewhere,
    )

    parts = {each.part: each.share for each in limits(slow, on_gpu=True, loader=None, cores=4)}

    part, share = shown
    assert parts[part] == pytest.approx(share)
    assert ("own code" in parts) == (part == "own code")


def test_waiting_for_other_ranks_is_a_part() -> None:
    slow = tried(pace=pace(1.0, compute=1.0), stacks=(RANKS,) * 4 + (TORCH,) * 6)

    parts = {each.part: each.share for each in limits(slow, on_gpu=True, loader=None, cores=4)}

    assert parts["other ranks"] == pytest.approx(0.4)


def test_a_part_that_is_all_of_it_divides_by_nothing() -> None:
    for phase in ("data", "checkpoint", "evaluate", "compute"):
        (only,) = limits(tried(pace=pace(1.0, **{phase: 1.0})), on_gpu=False, loader=None, cores=1)
        assert only.gain >= 1.0


def test_shares_by_fewer_than_8_stacks_are_not_known() -> None:
    few = tried(pace=pace(1.0, data=0.3, compute=0.7), stacks=(OWN,) * 7)

    found = limits(few, on_gpu=True, loader=None, cores=2)

    assert limits(tried(), on_gpu=True, loader=None, cores=2) == []
    assert [(each.part, round(each.share, 6)) for each in found] == [
        ("compute and own code", 0.7),
        ("data", 0.3),
    ]
    assert own_share(found) is None
    enough = limits(
        tried(pace=pace(1.0, compute=1.0), stacks=(OWN,) * 8), on_gpu=True, loader=None, cores=2
    )
    assert own_share(enough) == 1.0


def test_a_script_without_a_simulation_has_no_share_of_one() -> None:
    own = ("prepare (train.py:40)", "main (train.py:9)")
    slow = tried(pace=pace(1.0, compute=1.0), stacks=(own,) * 10)

    assert [each.part for each in limits(slow, on_gpu=True, loader=None, cores=2)] == ["own code"]
