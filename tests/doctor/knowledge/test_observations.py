"""What people share: it names nobody, and neither liars nor a flood change what is said."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from rocsteady.cli.share import shared_names
from rocsteady.doctor.knowledge.observations import (
    ENTRY_LIMIT,
    Cell,
    Entry,
    Names,
    Tried,
    can_be_stated,
    count,
    decode_entry,
    entry_problems,
    is_known_value,
    share,
)
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.shared_entry import (
    ADDRESS_LIMIT,
    FORM,
    build_entry,
    entry_text,
    form_address,
    probes_tried,
)
from rocsteady.errors import ExaminationError
from rocsteady.model import Observation, ProbeOutcome
from tests.conftest import Recorded

REPOSITORY = Path(__file__).parents[3]
MONTH = "2026-12"
RUNS = Tried(what="run", times=3)


@pytest.fixture(scope="module")
def names() -> Names:
    return shared_names()


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = REPOSITORY / "tools" / "observations.py"
    spec = importlib.util.spec_from_file_location("observations", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["observations"] = module
    spec.loader.exec_module(module)
    return module


def test_an_entry_of_a_machine(recorded: Recorded, names: Names) -> None:
    entry = build_entry(recorded.machine("rx9070xt"), recorded.knowledge, names, [RUNS], MONTH)

    assert entry.gpu.gfx == "gfx1201"
    assert entry.cell[0] == "gfx1201"
    assert list(entry_problems(entry, recorded.knowledge, names, MONTH)) == []
    assert decode_entry(entry_text(entry)) == entry
    assert form_address(entry).startswith(f"{FORM}&entry=%7B")


@pytest.mark.parametrize(
    ("value", "known"),
    [
        ("1", True),
        ("off", True),
        ("0,1", True),
        ("10.3.0", True),
        ("expandable_segments:True,max_split_size_mb:512", True),
        ("jane:1", False),
        ("GPU-5f2d9c1ab3e4d7f6", False),
        ("/home/jane/cache", False),
        ("31337", False),
        ("", False),
    ],
)
def test_values_of_variables(knowledge: Knowledge, value: str, *, known: bool) -> None:
    assert is_known_value(value, knowledge.variables["HSA_OVERRIDE_GFX_VERSION"]) is known


def test_a_machine_without_a_gpu_or_torch_has_nothing_to_share(
    recorded: Recorded, names: Names
) -> None:
    with pytest.raises(ExaminationError, match="no AMD GPU"):
        build_entry(recorded.machine("no-amd-gpu"), recorded.knowledge, names, [RUNS], MONTH)


PLANTED = ("hunter2", "jane.doe", "node117.example.org", "/home/jane", "GPU-5f2d9c1ab3e4d7f6",
           "10.20.30.40", "00:1a:2b:3c:4d:5e", "hf_abcdefghijklmnop", "jane@example.org",
           "acme-secret-project")  # fmt: skip


def planted_machine(machine: Machine, knowledge: Knowledge) -> tuple[Machine, list[str]]:
    """Append something that identifies a person to every text of a machine."""
    planted: list[str] = []

    def mark() -> str:
        planted.append(f"{PLANTED[len(planted) % len(PLANTED)]}-{len(planted):04}")
        return planted[-1]

    def plant(value: Any, key: str = "") -> Any:  # noqa: ANN401 - what JSON has
        if isinstance(value, str):
            keep = key in ("gfx", "os", "build", "kind") or not value
            return value if keep else f"{value}{'-' if value[-1].isdigit() else ''}{mark()}"
        if isinstance(value, dict):
            return {name: plant(each, name) for name, each in value.items()}
        return [plant(each) for each in value] if isinstance(value, list) else value

    variables = [SetVariable(name=name, value=mark()) for name in knowledge.variables]
    changed = plant(msgspec.to_builtins(machine))
    whole = msgspec.convert(changed, Machine)
    return msgspec.structs.replace(whole, variables=tuple(variables)), planted


@pytest.mark.parametrize(
    "name", ["rx9070xt", "rx7900xt-pair", "strix-halo", "rx7900xtx", "mi300x-8"]
)
def test_nothing_that_identifies_a_person_is_in_an_entry(
    recorded: Recorded, names: Names, name: str
) -> None:
    machine, planted = planted_machine(recorded.machine(name), recorded.knowledge)
    planted += [f"said-{place}-jane" for place in ("why", "place", "evidence", "said", "variant")]
    observed = [
        Observation(
            probe=probe,
            variant="said-variant-jane",
            outcome=ProbeOutcome.HANG,
            tries=7,
            seconds=1.0,
            why="said-why-jane",
            place="said-place-jane",
            failure=failure,
            evidence="said-evidence-jane",
            said={"user": "said-said-jane"},
        )
        for probe, failure in (
            ("matmul-gradient", "hang-in-backward"),
            ("trial", "hang"),
            ("jane-probe", "hang"),
            ("churn", "jane-failure"),
        )
    ]
    planted += ["jane-probe", "jane-failure"]

    entry = build_entry(machine, recorded.knowledge, names, probes_tried(observed, names), MONTH)

    text = entry_text(entry)
    assert len(planted) >= 300
    assert [each for each in planted if each in text] == []
    assert not any(word in text for word in PLANTED)
    assert {"matmul-gradient", "churn"} == {tried.what for tried in entry.tried}
    assert len(text) <= ENTRY_LIMIT
    assert len(form_address(entry)) <= ADDRESS_LIMIT


def test_the_largest_entry_has_an_address_that_opens(recorded: Recorded, names: Names) -> None:
    """What fits into an entry fits into the address, or the address is that of the empty form."""
    entry = build_entry(recorded.machine("rx9070xt"), recorded.knowledge, names, [RUNS], MONTH)
    variables: dict[str, str] = {}
    for name in recorded.knowledge.variables:
        variables[name] = "1"
        larger = msgspec.structs.replace(entry, variables=variables)
        if len(entry_text(larger)) > ENTRY_LIMIT:
            break
        assert len(form_address(larger)) <= ADDRESS_LIMIT
    assert len(variables) > 50


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"note": "hello"}, "note"),
        ({"torch": "2.12.1+rocm7.2.jane"}, "torch"),
        ({"torch": "9.0.0"}, "torch"),
        ({"month": "2031-01"}, "month"),
        ({"month": "2026-13"}, "month"),
        ({"kernel": "6.14-jane"}, "kernel"),
        ({"kernel": "2.6"}, "kernel"),
        ({"rocm": "97.1"}, "rocm"),
        ({"version": 2}, "version"),
        ({"variables": {"JANES_KEY": "1"}}, "variables"),
        ({"variables": {"HSA_XNACK": "jane"}}, "variables"),
        ({"gpu": {"gfx": "gfx1201", "device": 0x744C}}, "device"),
        ({"gpu": {"gfx": "gfx777"}}, "gfx"),
        ({"tried": []}, "tried"),
        ({"tried": [{"what": "run", "times": 0}]}, "times"),
        ({"tried": [{"what": "run", "times": 1, "failures": {"hang": 2}}]}, "tried"),
        ({"tried": [{"what": "run", "times": 9, "failures": {"jane": 2}}]}, "tried"),
        ({"tried": [{"what": "jane", "times": 9}]}, "tried"),
    ],
)
def test_what_is_refused(
    recorded: Recorded, names: Names, change: dict[str, Any], field: str
) -> None:
    entry = build_entry(recorded.machine("rx9070xt"), recorded.knowledge, names, [RUNS], MONTH)
    text = json.dumps({**json.loads(entry_text(entry)), **change})
    try:
        problems = list(entry_problems(decode_entry(text), recorded.knowledge, names, MONTH))
    except msgspec.DecodeError as error:
        problems = [str(error)]

    assert problems
    assert field in problems[0]


# Ten thousand people.

STACKS = (("2.12.1", "7.2"), ("2.13.0", "7.2"), ("2.14.1", "7.14"), ("2.9.1", "6.4"))
GPUS = ("gfx1201", "gfx1200", "gfx1100", "gfx1101", "gfx1030", "gfx1151", "gfx942", "gfx90a",
        "gfx1102", "gfx1010")  # fmt: skip
KINDS = ("hang-in-loader", "hang-in-backward", "gpu-hang", "memory-access-fault", "oom-device")
HELPS = {"hang-in-loader": "loader-inline", "gpu-hang": "retry"}


def body(entry: dict[str, Any]) -> str:
    """Write an issue as the form does."""
    text = json.dumps(entry)
    return f"### Entry\n\n```json\n{text}\n```\n\n### Removal\n\n- [ ] Remove this entry\n"


def an_entry(gfx: str, stack: tuple[str, str], failures: dict[str, int]) -> dict[str, Any]:
    helped = [
        {"failure": kind, "workaround": HELPS[kind], "runs": 1}
        for kind in failures
        if kind in HELPS
    ]
    return {
        "version": 1,
        "month": "2026-11",
        "rocsteady": "0.1.0",
        "gpu": {"gfx": gfx},
        "system": "linux",
        "kernel": "6.14",
        "rocm": stack[1],
        "torch": stack[0],
        "torch_index": "pytorch",
        "tried": [{"what": "run", "times": 20, "failures": failures, "helped": helped}],
    }


def truths() -> dict[tuple[str, str], dict[str, float]]:
    """Plant in every third cell how many of the people there have a failure."""
    dice = random.Random(7)  # noqa: S311 - planted, not secret
    cells = [(gfx, stack[0]) for gfx in GPUS for stack in STACKS]
    return {
        cell: {dice.choice(KINDS): dice.choice((0.2, 0.35, 0.6))} if number % 3 == 0 else {}
        for number, cell in enumerate(cells)
    }


def generated(tool: ModuleType, number: int, planted: dict[Any, dict[str, float]]) -> list[Any]:
    dice = random.Random(11)  # noqa: S311 - as above
    issues = []
    for each in range(number):
        gfx, stack = dice.choice(GPUS), dice.choice(STACKS)
        rates = planted[gfx, stack[0]]
        failures = {kind: 2 for kind, rate in rates.items() if dice.random() < rate}
        issues.append(tool.Issue(each + 1, f"user{each}", body(an_entry(gfx, stack, failures))))
    return issues


def statements(cells: list[Cell]) -> dict[tuple[str, str, str], Any]:
    return {
        (cell.gfx, cell.torch, each.kind): (share(each.people, cell.people), set(each.helped))
        for cell in cells
        for each in cell.failures
        if can_be_stated(share(each.people, cell.people))
    }


def test_ten_thousand_entries_with_false_ones_and_a_flood(tool: ModuleType, tmp_path: Path) -> None:
    planted = truths()
    honest = generated(tool, 9_300, planted)
    dice = random.Random(13)  # noqa: S311 - as above
    false = [
        tool.Issue(
            20_000 + each,
            f"liar{each}",
            body(an_entry(dice.choice(GPUS), dice.choice(STACKS), {dice.choice(KINDS): 20})),
        )
        for each in range(200)
    ]
    flood = [
        tool.Issue(
            30_000 + each,
            "flooder",
            body(an_entry(GPUS[each % 10], STACKS[each % 4], {KINDS[each % 5]: 1 + each % 20})),
        )
        for each in range(500)
    ]

    alone = tool.Observations(tmp_path / "alone", salt="x")
    alone.take_in(honest, MONTH)
    start = time.perf_counter()
    observations = tool.Observations(tmp_path, salt="x")
    wrong = observations.take_in([*honest, *false, *flood], MONTH)
    observations.write()
    cells = count(tool.Observations(tmp_path).received.values())
    seconds = time.perf_counter() - start

    assert seconds < 60
    refused = [number for number, problems in wrong.items() if problems]
    assert len(refused) == 500 - tool.MOST_OF_ONE
    assert min(refused) >= 30_000
    found, before = statements(cells), statements(count(alone.received.values()))
    expected = {
        (gfx, torch.rpartition(".")[0], kind): rate
        for (gfx, torch), rates in planted.items()
        for kind, rate in rates.items()
    }
    assert set(found) == set(before) == set(expected)
    outside = [
        key for key, (bounds, _) in found.items() if not bounds.low <= expected[key] <= bounds.high
    ]
    assert len(outside) <= 0.05 * len(expected)
    assert all(helped <= {HELPS.get(key[2])} for key, (_, helped) in found.items())


def test_one_account_counts_once_and_a_ticked_box_removes_it(
    tool: ModuleType, tmp_path: Path
) -> None:
    observations = tool.Observations(tmp_path, salt="x")
    entry = an_entry("gfx1201", STACKS[0], {})
    worse = an_entry("gfx1201", STACKS[0], {"gpu-hang": 1})
    issues = [tool.Issue(1, "jane", body(entry)), tool.Issue(2, "jane", body(entry)),
              tool.Issue(3, "jane", body(worse)), tool.Issue(4, "joe", body(entry))]  # fmt: skip

    wrong = observations.take_in(issues, MONTH)
    observations.write()

    assert [number for number, problems in wrong.items() if problems] == [2]
    (cell,) = count(observations.received.values())
    assert (cell.people, [each.kind for each in cell.failures]) == (2, ["gpu-hang"])
    assert not [path for path in tmp_path.rglob("*.json") if b"jane" in path.read_bytes()]

    ticked = body(worse).replace("[ ]", "[x]")
    observations.take_in([tool.Issue(3, "jane", ticked)], MONTH)
    observations.write()

    assert sorted(path.name for path in tmp_path.rglob("*.json")) == ["1.json", "4.json"]


@pytest.mark.parametrize(
    "text", ["", "### Entry\n\nhello", '### Entry\n\n```json\n{"version": 1}\n```', "{" * 5000]
)
def test_an_issue_without_an_entry_is_refused_with_its_reason(
    tool: ModuleType, tmp_path: Path, text: str
) -> None:
    wrong = tool.Observations(tmp_path).take_in([tool.Issue(1, "jane", text)], MONTH)

    assert len(wrong[1]) == 1


def test_the_counts_of_the_package_are_those_of_its_files(tool: ModuleType) -> None:
    assert tool.COUNTS.read_bytes() == tool.Observations().counts()


def test_the_form_asks_for_what_the_address_fills_in() -> None:
    form = (REPOSITORY / ".github/ISSUE_TEMPLATE/observation.yml").read_text()

    assert "template=observation.yml" in FORM
    assert "id: entry" in form
    assert "label: Remove this entry" in form
    assert "label: Entry\n" in form


def test_an_entry_can_be_encoded_with_nothing_but_its_fields() -> None:
    fields = set(Entry.__struct_encode_fields__)
    assert fields == {
        "version", "month", "rocsteady", "gpu", "system", "kernel", "driver", "rocm", "torch",
        "torch_index", "python", "variables", "tried",
    }  # fmt: skip
