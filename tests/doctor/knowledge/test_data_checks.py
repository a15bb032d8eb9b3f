"""What authors overlook, and that the shipped entries have none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.knowledge.rules import Condition
from tests.doctor.knowledge.data_checks import complaints, never_holds

if TYPE_CHECKING:
    from tests.conftest import Recorded


def condition(**content: object) -> Condition:
    return msgspec.convert(content, Condition)


def test_the_shipped_entries_are_in_order(recorded: Recorded) -> None:
    assert list(complaints(recorded.knowledge, load_failures())) == []


@pytest.mark.parametrize(
    "parts",
    [
        [{"fact": "os", "is": "linux"}, {"fact": "os", "is": "windows"}],
        [{"fact": "os", "is": "linux"}, {"fact": "os", "one_of": ["windows"]}],
        [{"fact": "torch.rocm", "version": ">=7.14"}, {"fact": "torch.rocm", "version": "<7.3"}],
        [{"fact": "torch.version", "version": ">=2.9,<2.8"}],
        [{"fact": "shm.gib", "at_least": 8}, {"fact": "shm.gib", "below": 4}],
        [
            {"fact": "variable:HSA_XNACK", "is": "1"},
            {"fact": "variable:HSA_XNACK", "present": False},
        ],
        [{"fact": "os", "is": "linux"}, {"none": [{"fact": "os", "is": "linux"}]}],
        [{"any": [{"fact": "torch.rocm", "version": ">2,<1"}]}, {"fact": "os", "is": "linux"}],
    ],
)
def test_a_condition_that_contradicts_itself_never_holds(parts: list[dict[str, object]]) -> None:
    assert never_holds(condition(all=parts))


@pytest.mark.parametrize(
    "parts",
    [
        [{"fact": "gpu.gfx", "is": "gfx1100"}, {"fact": "gpu.gfx", "is": "gfx1030"}],  # two cards
        [{"fact": "torch.rocm", "version": ">=7.0"}, {"fact": "torch.rocm", "version": "<7.2"}],
        [{"fact": "torch.version", "version": "==2.9.*"}],
        [{"fact": "torch.version", "version": ">=2.9,!=2.9.0"}],
        [{"fact": "os", "is": "linux"}, {"none": [{"fact": "wsl", "is": True}]}],
    ],
)
def test_one_that_some_machine_fulfils_is_not_accused(parts: list[dict[str, object]]) -> None:
    assert not never_holds(condition(all=parts))


def test_each_thing_that_is_wrong_is_named(recorded: Recorded) -> None:
    knowledge = recorded.knowledge
    rule = knowledge.rules["caching-off"]
    spoilt = msgspec.structs.replace(
        knowledge,
        rules={
            "a": rule,
            "b": msgspec.structs.replace(rule, id="b", title="Another"),
            "c": msgspec.structs.replace(rule, id="c", sources=(), when=condition(all=[])),
            "d": msgspec.structs.replace(
                rule,
                id="d",
                sources=("gone",),
                title="A third",
                when=condition(fact="torch.version", version=">3,<2"),
            ),
        },
        sources={
            key: msgspec.structs.replace(source, date="" if key == "rocm-6647" else source.date)
            for key, source in knowledge.sources.items()
        },
    )

    found = list(complaints(spoilt, None))

    assert found == [
        "c: sources: has none",
        "rocm-6647: date: has none",
        "gone: is named as a source, and is not in sources.toml",
        "d: when: can never hold",
        "b: when: is the condition of caching-off, too",
        "c: title: is the title of caching-off, too",
    ]
