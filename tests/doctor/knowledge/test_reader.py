"""A bad entry is ignored and listed by file, entry and field; the others count."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.knowledge.failures import known_messages, load_failures
from rocsteady.doctor.knowledge.gpu_rental import load_offers, load_speeds
from rocsteady.doctor.knowledge.hardware import Arch, Product, Variable, WheelRelease
from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.knowledge.library_contents import load_seen
from rocsteady.doctor.knowledge.options import load_other_options
from rocsteady.doctor.knowledge.reader import DATA, DataFolder, Knowledge, load_knowledge
from rocsteady.doctor.knowledge.resume_arguments import load_arguments
from rocsteady.doctor.knowledge.rules import Condition, Rule
from rocsteady.doctor.knowledge.values import Confidence, Fix, Need, Severity, Source
from rocsteady.doctor.knowledge.waits import load_waits
from rocsteady.errors import KnowledgeError
from rocsteady.failures.remedy import load_remedies

Entry: TypeAlias = dict[str, Any]

TABLES: tuple[Callable[[DataFolder], object], ...] = (
    harmful_variables,
    known_messages,
    load_arguments,
    load_failures,
    load_offers,
    load_other_options,
    load_remedies,
    load_seen,
    load_speeds,
    load_waits,
)
FACTS = {"gpu.gfx": "", "os": ""}
CHECKS = {"some-check": ""}
SOURCES = """
[sources.src]
owner = "ROCm"
name = "HIP"
title = "A page"
date = "2025"
url = "https://example.org/page"
"""
GPUS = """
[[arch]]
gfx = "gfx1100"
family = "gfx11_0"
name = "Navi 31"

[[product]]
device = 0x744c
name = "Radeon RX 7900 series"
gfx = "gfx1100"
"""
WHEELS = """
[[release]]
torch = ">=2.5,<2.6"
rocm = "6.2"
arches = ["gfx1100"]
sources = ["src"]
"""
VARIABLES = """
[[variable]]
name = "HSA_XNACK"
read_by = "ROCr"
meaning = "Retries."
sources = ["src"]
"""
RULE: Entry = {
    "id": "some-rule",
    "title": "A title",
    "severity": "risks",
    "when": {"fact": "gpu.gfx", "family": ["gfx11_0"]},
    "summary": "{gpu.gfx} is slow.",
    "why": "Because.",
    "fix": {"text": "Do it.", "commands": ["do {gpu.gfx}"], "needs": ["sudo"]},
    "confidence": "official",
    "sources": ["src"],
    "confirmed_on": [],
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a small knowledge base that is in order, with no rule yet."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "coverage.toml").write_text('kernel = "7.0"\n')
    texts = {"sources": SOURCES, "gpus": GPUS, "wheels": WHEELS, "variables": VARIABLES}
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text)
    return tmp_path


def load(folder: Path) -> Knowledge:
    return load_knowledge(folder, facts=FACTS, checks=CHECKS)


def problem_of(folder: Path) -> str:
    """Return why the only entry that is ignored is ignored."""
    [problem] = load(folder).ignored
    return problem


def write_rules(folder: Path, *rules: Mapping[str, Any]) -> None:
    (folder / "rules" / "bad.json").write_text(json.dumps({"rule": rules}))


def changed(path: str, value: object) -> Entry:
    """Return the good rule with one field set."""
    rule = copy.deepcopy(RULE)
    *heads, last = path.split(".")
    place = rule
    for head in heads:
        place = place[head]
    place[last] = value
    return rule


def test_a_good_base_is_read_whole(base: Path) -> None:
    write_rules(base, RULE)

    assert load(base) == Knowledge(
        rules={
            "some-rule": Rule(
                id="some-rule",
                title="A title",
                severity=Severity.RISKS,
                when=Condition(fact="gpu.gfx", family=("gfx11_0",)),
                summary="{gpu.gfx} is slow.",
                why="Because.",
                fix=Fix(text="Do it.", commands=("do {gpu.gfx}",), needs=(Need.SUDO,)),
                confidence=Confidence.OFFICIAL,
                sources=("src",),
                confirmed_on=(),
            )
        },
        sources={
            "src": Source(
                owner="ROCm",
                name="HIP",
                title="A page",
                date="2025",
                url="https://example.org/page",
            )
        },
        variables={
            "HSA_XNACK": Variable(
                name="HSA_XNACK", read_by="ROCr", meaning="Retries.", sources=("src",)
            )
        },
        arches={"gfx1100": Arch(gfx="gfx1100", family="gfx11_0", name="Navi 31")},
        products=(Product(device=0x744C, name="Radeon RX 7900 series", gfx="gfx1100"),),
        wheels=(
            WheelRelease(torch=">=2.5,<2.6", rocm="6.2", arches=("gfx1100",), sources=("src",)),
        ),
        kernel="7.0",
    )


ONE_OPERATOR = (
    "a fact takes exactly one of is, one_of, family, version, at_least, below, contains, "
    "starts_with, present, distinct"
)
ONE_HEAD = "exactly one of all, any, none, check or fact"


NOT_EMPTY = "Expected `str` matching regex '\\\\S' - at `$.{}`"


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("when.colour", "red", "Object contains unknown field `colour` - at `$.when`"),
        ("title", 7, "Expected `str`, got `int` - at `$.title`"),
        ("severity", "fatal", "Invalid enum value 'fatal' - at `$.severity`"),
        ("fix.needs", ["luck"], "Invalid enum value 'luck' - at `$.fix.needs[0]`"),
        ("sources", "src", "Expected `array`, got `str` - at `$.sources`"),
        ("when", [], "Expected `object`, got `array` - at `$.when`"),
        ("title", " ", NOT_EMPTY.format("title")),
        ("summary", "", NOT_EMPTY.format("summary")),
        ("why", "\n", NOT_EMPTY.format("why")),
        ("fix.text", "", "fix.text: empty"),
        ("sources", [], "Expected `array` of length >= 1 - at `$.sources`"),
        ("sources", ["nowhere"], "sources: 'nowhere' is not in sources.toml"),
        ("when", {}, f"when: {ONE_HEAD}"),
        ("when", {"fact": "os", "check": "some-check"}, f"when: {ONE_HEAD}"),
        ("when", {"all": [{}]}, f"when.all[0]: {ONE_HEAD}"),
        ("when", {"all": []}, "when.all: empty"),
        ("when", {"all": [{"any": []}]}, "when.all[0].any: empty"),
        ("when", {"fact": "os"}, f"when: {ONE_OPERATOR}"),
        ("when", {"fact": "os", "is": "a", "contains": "b"}, f"when: {ONE_OPERATOR}"),
        ("when", {"any": [{"fact": "os", "is": "a"}], "is": "a"}, "when: any takes no is"),
        ("when", {"check": "some-check", "is": True}, "when: check takes no is"),
        ("when", {"fact": "gpu.colour", "is": "a"}, "when.fact: 'gpu.colour' is not a fact"),
        (
            "when",
            {"fact": "variable:MADE_UP", "is": "1"},
            "when.fact: 'variable:MADE_UP' is not a fact",
        ),
        ("when", {"check": "no-check"}, "when.check: 'no-check' is not a check"),
        (
            "when",
            {"fact": "os", "version": "2.8 or so"},
            "when.version: '2.8 or so' is not a version range",
        ),
        ("when", {"fact": "os", "version": ""}, "when.version: empty"),
        ("when", {"fact": "os", "one_of": []}, "when.one_of: empty"),
        ("when", {"fact": "os", "family": []}, "when.family: empty"),
        ("when", {"fact": "os", "contains": ""}, "when.contains: empty"),
        ("when", {"fact": "os", "starts_with": ""}, "when.starts_with: empty"),
        (
            "when",
            {"none": [{"fact": "os", "family": ["gfx99"]}]},
            "when.none[0].family: 'gfx99' is not a family of gpus.toml",
        ),
        ("summary", "{gpu.colour}", "summary: {gpu.colour} is not a fact"),
        ("summary", "{seen}", "summary: {seen} needs a check in when"),
        ("summary", "{set}", "summary: {set} needs a variable in when"),
        ("fix.commands", ["{gpu}"], "fix.commands: {gpu} is not a fact"),
        ("fix.windows", ["{gpu}"], "fix.windows: {gpu} is not a fact"),
        ("fix.container", ["{gpu}"], "fix.container: {gpu} is not a fact"),
    ],
)
def test_a_bad_rule_is_ignored_alone(base: Path, field: str, value: object, problem: str) -> None:
    write_rules(base, changed(field, value), {**RULE, "id": "another"})

    assert problem_of(base) == f"bad.json: some-rule: {problem}"
    assert list(load(base).rules) == ["another"]


@pytest.mark.parametrize("field", ["colour", "fix.colour"])
def test_a_field_that_is_not_known_is_ignored_alone(base: Path, field: str) -> None:
    write_rules(base, changed(field, "red"))

    assert problem_of(base) == f"bad.json: some-rule: {field}: not known"
    assert list(load(base).rules) == ["some-rule"]


def test_the_shipped_data_is_understood_whole() -> None:
    assert doctors_knowledge().ignored == ()
    data = DataFolder()
    for load in TABLES:
        load(data)
    assert data.ignored == []


@pytest.mark.parametrize("field", RULE)
def test_a_missing_field_is_named(base: Path, field: str) -> None:
    write_rules(base, {name: value for name, value in RULE.items() if name != field})

    name = "entry 1" if field == "id" else "some-rule"
    assert problem_of(base) == f"bad.json: {name}: Object missing required field `{field}`"


@pytest.mark.parametrize("name", ["Some-Rule", "some_rule", "-rule", "rule-", "a--b", "a b", ""])
def test_an_id_that_is_no_slug_is_refused(base: Path, name: str) -> None:
    write_rules(base, changed("id", name))

    assert problem_of(base).startswith(f"bad.json: {name}: ")
    assert problem_of(base).endswith("- at `$.id`")


def test_an_id_that_is_taken_is_refused_also_in_another_file(base: Path) -> None:
    write_rules(base, RULE)
    (base / "rules" / "more.json").write_text(json.dumps({"rule": [RULE]}))

    assert problem_of(base) == "more.json: some-rule: id: taken by another entry"


def test_an_entry_that_is_no_table_is_called_by_its_place(base: Path) -> None:
    (base / "rules" / "bad.json").write_text(json.dumps({"rule": [RULE, 7]}))

    assert problem_of(base) == "bad.json: entry 2: Expected `object`, got `int`"


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("gpus", '"Navi 31"', '"Navi 31"\ncolour = "red"', "Navi 31: colour: not known"),
        ("gpus", "\ndevice = 0x744c", '\ndevice = "744c"', "Expected `int`, got `str`"),
        ("gpus", "[[product]]", "[[products]]", "products: not one of arch, product"),
        ("wheels", ">=2.5,<2.6", "2.5 and so on", "torch: '2.5 and so on' is not a version range"),
        ("wheels", '"src"', '"nowhere"', "sources: 'nowhere' is not in sources.toml"),
        ("wheels", '"gfx1100"', '"gfx99"', "arches: 'gfx99' is not an arch of gpus.toml"),
        ("wheels", "[[release]]", "[release]", "release: must be a list of tables"),
        ("variables", '"src"', '"nowhere"', "sources: 'nowhere' is not in sources.toml"),
        ("variables", "read_by", "readby", "missing required field `read_by`"),
        ("variables", "[[variable]]", '[[variable]]\ncancels = ["B"]', "'B' is not in variables"),
    ],
)
def test_a_bad_entry_of_another_file_is_ignored(
    base: Path, file: str, old: str, new: str, problem: str
) -> None:
    path = base / f"{file}.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))

    assert problem_of(base).startswith(f"{file}.toml: ")
    assert problem in problem_of(base)


def test_what_refers_to_an_ignored_entry_is_ignored_too(base: Path) -> None:
    write_rules(base, RULE)
    (base / "sources.toml").write_text(SOURCES.replace("owner", "author"))

    known = load(base)

    assert (known.rules, known.variables, known.wheels) == ({}, {}, ())
    assert list(known.arches) == ["gfx1100"]
    assert known.ignored == (
        "sources.toml: src: Object missing required field `owner`",
        "variables.toml: HSA_XNACK: sources: 'src' is not in sources.toml",
        "bad.json: some-rule: sources: 'src' is not in sources.toml",
        "wheels.toml: >=2.5,<2.6: sources: 'src' is not in sources.toml",
    )


@pytest.mark.parametrize(
    ("file", "entry", "problem"),
    [
        ("variables", VARIABLES, "variables.toml: HSA_XNACK: name: taken by another entry"),
        (
            "gpus",
            GPUS.split("[[product]]", maxsplit=1)[0],
            "gpus.toml: Navi 31: gfx: taken by another entry",
        ),
    ],
)
def test_of_two_entries_with_one_name_the_first_counts(
    base: Path, file: str, entry: str, problem: str
) -> None:
    path = base / f"{file}.toml"
    path.write_text(path.read_text() + entry)

    assert problem_of(base) == problem


def break_toml(base: Path) -> str:
    (base / "rules" / "bad.toml").write_text("[[rule]\n")
    return "bad.toml: "


def break_json(base: Path) -> str:
    (base / "rules" / "bad.json").write_text('{"rule": [')
    return "bad.json: "


def nest_json_deeply(base: Path) -> str:
    (base / "rules" / "bad.json").write_text('{"rule": ' + "[" * 100_000)
    return "bad.json: "


def write_another_encoding(base: Path) -> str:
    (base / "rules" / "bad.toml").write_bytes(b'title = "\xff"')
    return "bad.toml: "


def write_a_list(base: Path) -> str:
    (base / "rules" / "bad.json").write_text("[]")
    return "bad.json: "


def take_sources_away(base: Path) -> str:
    (base / "sources.toml").unlink()
    return "sources.toml: No such file or directory"


def take_rules_away(base: Path) -> str:
    (base / "rules").rmdir()
    return "rules: No such file or directory"


@pytest.mark.parametrize(
    "damage",
    [
        break_toml,
        break_json,
        nest_json_deeply,
        write_another_encoding,
        write_a_list,
        take_sources_away,
        take_rules_away,
    ],
)
def test_a_file_that_cannot_be_read_is_named(base: Path, damage: Callable[[Path], str]) -> None:
    beginning = damage(base)

    with pytest.raises(KnowledgeError) as raised:
        load(base)

    assert str(raised.value).startswith(beginning)


def test_files_of_other_kinds_are_passed_over(base: Path) -> None:
    (base / "rules" / "notes.md").write_text("not a rule")

    assert load(base).rules == {}


def test_names_of_facts_and_checks_are_judged_only_if_they_are_known(base: Path) -> None:
    write_rules(base, changed("when", {"fact": "anything", "is": 1}))

    assert list(load_knowledge(base).rules) == ["some-rule"]


def test_toml_and_json_give_equal_rules(tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path / "data")
    for path in sorted((tmp_path / "data" / "rules").iterdir()):
        document = msgspec.toml.decode(path.read_bytes())
        path.with_suffix(".json").write_bytes(msgspec.json.encode(document))
        path.unlink()

    assert load_knowledge(tmp_path / "data") == load_knowledge()


@pytest.mark.parametrize(
    ("device", "revision", "name"),
    [
        (0x744C, 0xC8, "Radeon RX 7900 XTX"),
        (0x744C, 0xCC, "Radeon RX 7900 XT"),
        (0x744C, 0x00, "Radeon RX 7900 series"),
        (0x744C, None, "Radeon RX 7900 series"),
        (0x0001, None, None),
        (None, None, None),
    ],
)
def test_a_card_is_named_by_its_revision_if_that_is_known(
    knowledge: Knowledge, device: int | None, revision: int | None, name: str | None
) -> None:
    product = knowledge.product(device, revision)

    assert (product.name if product else None) == name
