"""What each level does, and that every line of the table names something that exists."""

from __future__ import annotations

import ast
from importlib import resources

import pytest

from rocsteady.probe.catalog import FRESH_START, LEVELS, PROBES, Probe


def functions(module: str) -> set[str]:
    """Name the functions of a module of payloads, which may need torch to be imported."""
    source = resources.files("rocsteady_train.inside.payloads").joinpath(f"{module}.py")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_has_a_title_of_its_own() -> None:
    titles = [probe.title for probe in PROBES]

    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.title)
def test_its_payload_exists(probe: Probe) -> None:
    module, _, function = probe.payload.partition(":")

    assert function in functions(module)


@pytest.mark.parametrize("level", LEVELS)
def test_a_higher_level_tries_no_less(level: int) -> None:
    for probe in (each for each in PROBES if each.level <= level):
        assert list(probe.tries) == sorted(probe.tries)
        assert list(probe.seconds) == sorted(probe.seconds)


def estimate(level: int, *, gpus: int = 0) -> float:
    chosen = [probe for probe in PROBES if probe.level <= level and probe.gpus <= gpus]
    return sum(FRESH_START + probe.seconds[LEVELS.index(level)] for probe in chosen)


def test_levels_take_as_long_as_they_say() -> None:
    assert estimate(1, gpus=1) <= 25.0
    assert 7 * 60 <= estimate(3) <= 11 * 60
    assert estimate(2, gpus=1) <= 100.0
