"""10,000 rules in one file load and match; benchmarks/knowledge_scale.py has the figures."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rocsteady.doctor.diagnosis import CHECKS, diagnose
from rocsteady.doctor.facts import FACTS
from rocsteady.doctor.knowledge.reader import DATA, load_knowledge

if TYPE_CHECKING:
    from tests.conftest import Recorded

MANY = 10_000
SECONDS = 5.0  # of processor time, which a busy machine does not stretch; about 1 is usual


def test_ten_thousand_rules_as_one_json_file(recorded: Recorded, tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path / "data", ignore=shutil.ignore_patterns("rules"))
    shipped = [msgspec.to_builtins(rule) for rule in recorded.knowledge.rules.values()]
    rules = [
        {**each, "id": f"n{number}-{each['id']}", "when": given(each["when"])}
        for number, each in zip(range(MANY), shipped * MANY, strict=False)
    ]
    (tmp_path / "data" / "rules").mkdir()
    (tmp_path / "data" / "rules" / "all.json").write_bytes(msgspec.json.encode({"rule": rules}))
    machine = recorded.machine("rx7900xt-pair")

    start = time.process_time()
    knowledge = load_knowledge(tmp_path / "data", facts=FACTS, checks=CHECKS)
    diagnosis = diagnose(machine, knowledge)
    elapsed = time.process_time() - start

    once = recorded.diagnosis("rx7900xt-pair").findings
    assert len(knowledge.rules) == MANY
    assert len(diagnosis.findings) >= MANY // len(shipped) * len(once)
    assert elapsed < SECONDS


def given(condition: dict[str, object]) -> dict[str, object]:
    """Leave out what a condition does not say, as a file does."""
    groups = {
        name: [given(part) for part in parts]
        for name in ("all", "any", "none")
        if isinstance(parts := condition.get(name), (list, tuple))
    }
    said = {name: value for name, value in condition.items() if value is not None}
    return {**said, **groups}
