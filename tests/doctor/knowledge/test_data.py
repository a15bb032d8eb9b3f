"""The shipped knowledge: plain words, sources that can be found, and nothing left over."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rocsteady.doctor.checks import CHECKS
from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.facts import FACTS
from rocsteady.doctor.knowledge.gpu_rental import load_offers, load_speeds
from rocsteady.doctor.knowledge.options import load_other_options
from rocsteady.doctor.knowledge.reader import DATA, Knowledge
from rocsteady.doctor.knowledge.rules import PLACEHOLDER, Rule, leaves
from rocsteady.doctor.knowledge.values import Severity

RULES = list(doctors_knowledge().rules.values())
OPTIONS = load_other_options()
HOSTS = {
    "docs.jax.dev",
    "docs.kernel.org",
    "docs.pytorch.org",
    "github.com",
    "huggingface.co",
    "llvm.org",
    "rocm.blogs.amd.com",
    "rocm.docs.amd.com",
    "vladmandic.github.io",
    "www.thegamingpcguide.com",
}
REGISTRIES = {"pypi.org", "files.pythonhosted.org", "docker.io", "hub.docker.com", "ghcr.io"}
KNOWN_BY_QUOTATION = {  # have no address: what they say is known to us as others quote it
    "amd-jax",
    "field-note-a",
    "field-note-b",
    "field-note-e",
    "persona-finetune",
    "pytorch-alloc-conf-measured",
    "rocm-10_1-checked",
    "rocm-10_1-notes-wsl",
    "seen-in-libraries",
}
DATE = re.compile(r"20\d\d(-\d\d(-\d\d)?)?")
FACTS_NO_RULE_NEEDS_YET = {  # there for the rules that come next, or for the doctor itself
    "driver.loaded",
    "driver.version",
    "gpu.address",
    "gpu.firmware",
    "gpu.link_errors",
    "gpu.link_speed",
    "gpu.vram_gib",
    "gpu.xgmi_peers",
    "rocm.version",
    "torch.arches",
}
IN_TEXT_ONLY = {"gpu.discrete.indices", "override.settings"}

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)


def texts(rule: Rule) -> dict[str, str]:
    fix = rule.fix
    commands = (*fix.commands, *fix.windows, *fix.container)
    return {
        "title": rule.title,
        "summary": rule.summary,
        "why": rule.why,
        "fix.text": fix.text,
        "fix.verify": fix.verify,
        **{f"fix.commands {number}": line for number, line in enumerate(commands)},
    }


@each_rule
def test_every_text_is_plain(rule: Rule) -> None:
    for field, text in texts(rule).items():
        assert text.isascii(), field
        assert "!" not in text, field
        assert "\t" not in text, field


@each_rule
def test_a_title_and_a_summary_are_short(rule: Rule) -> None:
    assert len(rule.title) <= 60
    assert not rule.title.endswith(".")
    assert len(rule.summary) <= 200
    assert rule.summary.endswith(".")


@each_rule
def test_a_fix_can_be_done_and_its_success_seen(rule: Rule) -> None:
    assert rule.fix.text.endswith(".")
    assert rule.fix.verify
    if rule.severity is Severity.BLOCKS:
        assert rule.fix.commands
    commands = (*rule.fix.commands, *rule.fix.container)
    sudo = any("sudo " in line for line in commands)
    assert sudo == ("sudo" in {need.value for need in rule.fix.needs} and bool(commands))


@each_rule
def test_placeholders_are_facts_what_checks_saw_or_variables(rule: Rule) -> None:
    for field, text in texts(rule).items():
        allowed = field == "summary" or field.startswith("fix.commands")
        assert allowed or not PLACEHOLDER.search(text), field


@each_rule
def test_nothing_claims_to_be_confirmed_on_hardware_yet(rule: Rule) -> None:
    assert rule.confirmed_on == ()


@each_rule
def test_what_a_rule_says_of_a_variable_is_said_of_one_on_the_list(
    rule: Rule, knowledge: Knowledge
) -> None:
    families = ("AMD", "CUDA", "GPU", "HIP", "HSA", "MIOPEN", "NCCL", "PAL", "PYTORCH", "ROC\\w*")
    variable = re.compile(rf"\b(?:{'|'.join(families)}|TORCH)_[A-Z0-9_]*[A-Z0-9]\b")
    not_variables = {
        "AMD_SERIALIZE",  # two of them, in a command that looks for both
        "HIPBLAS_STATUS",  # an error
        "CUDA_LAUNCH_BLOCKING",  # CUDA's own, cited for comparison
        "ROCM_VERSION",
    }

    named = {name for text in texts(rule).values() for name in variable.findall(text)}

    assert named - not_variables <= set(knowledge.variables)


def cites(knowledge: Knowledge) -> list[tuple[str, ...]]:
    """Return what each entry cites."""
    return [
        *(rule.sources for rule in knowledge.rules.values()),
        *(variable.sources for variable in knowledge.variables.values()),
        *(wheel.sources for wheel in (*knowledge.wheels, *knowledge.indexes)),
        *(arch.sources for arch in knowledge.arches.values() if arch.cards),
        *(
            (*option.sources, option.setup_by) if option.setup_by else option.sources
            for option in OPTIONS
        ),
        *((offer.source,) for offer in load_offers()),
        *(card.sources for card in load_speeds().values()),
    ]


def test_every_source_is_used_and_every_entry_has_one(knowledge: Knowledge) -> None:
    assert {key for sources in cites(knowledge) for key in sources} == set(knowledge.sources)
    assert all(cites(knowledge))


def test_no_source_is_there_twice(knowledge: Knowledge) -> None:
    addresses = Counter(source.url for source in knowledge.sources.values() if source.url)
    things = Counter(
        (source.owner, source.name, source.number or source.title)
        for source in knowledge.sources.values()
    )

    assert [address for address, count in addresses.items() if count > 1] == []
    assert [thing for thing, count in things.items() if count > 1] == []


def test_no_entry_cites_a_source_twice(knowledge: Knowledge) -> None:
    assert [sources for sources in cites(knowledge) if len(set(sources)) < len(sources)] == []


def test_a_source_has_an_address_or_is_known_by_quotation(knowledge: Knowledge) -> None:
    without = {key for key, source in knowledge.sources.items() if not source.url}

    assert without == KNOWN_BY_QUOTATION


def test_addresses_are_public_pages_and_no_registry(knowledge: Knowledge) -> None:
    for key, source in knowledge.sources.items():
        assert source.title.isascii(), key
        assert DATE.fullmatch(source.date), key
        if source.url:
            address = urlsplit(source.url)
            assert address.scheme == "https", key
            assert address.netloc in HOSTS - REGISTRIES, key
            if address.netloc == "github.com":
                assert address.path.startswith(f"/{source.owner}/{source.name}"), key
            if source.number:
                assert address.path.endswith(f"/{source.number}"), key


def test_no_file_names_a_registry() -> None:
    for path in DATA.rglob("*.toml"):
        text = path.read_text(encoding="utf-8")
        assert text.isascii(), path.name
        assert not any(host in text for host in REGISTRIES), path.name


def test_every_check_is_used_and_every_fact_but_those_for_later(knowledge: Knowledge) -> None:
    used = [leaf for rule in knowledge.rules.values() for leaf in leaves(rule.when)]
    in_conditions = {leaf.fact for leaf in used if leaf.fact}
    in_texts = {
        name
        for rule in knowledge.rules.values()
        for text in texts(rule).values()
        for name in PLACEHOLDER.findall(text)
    }

    assert {leaf.check for leaf in used if leaf.check} == set(CHECKS)
    assert in_texts - in_conditions >= IN_TEXT_ONLY
    assert set(FACTS) - in_conditions - in_texts == FACTS_NO_RULE_NEEDS_YET


def test_variables_have_a_meaning_in_plain_words(knowledge: Knowledge) -> None:
    for variable in knowledge.variables.values():
        assert re.fullmatch(r"[A-Z][A-Z0-9_]+", variable.name)
        assert variable.meaning.endswith("."), variable.name
        assert variable.meaning.isascii(), variable.name
        assert "!" not in variable.meaning, variable.name


def test_families_have_one_instruction_set(knowledge: Knowledge) -> None:
    families: dict[str, set[str]] = {}
    for arch in knowledge.arches.values():
        families.setdefault(arch.family, set()).add(arch.generic)

    assert {family: generics for family, generics in families.items() if len(generics) > 1} == {}


def test_no_card_is_there_twice(knowledge: Knowledge) -> None:
    cards = Counter((product.device, product.revision) for product in knowledge.products)

    assert [card for card, count in cards.items() if count > 1] == []


def test_the_release_table_has_each_release_once(knowledge: Knowledge) -> None:
    ranges = list(dict.fromkeys(wheel.torch for wheel in knowledge.wheels))
    starts = [each.partition(",")[0].removeprefix(">=") for each in ranges]
    ends = [each.partition(",<")[2] for each in ranges]

    assert starts[1:] == ends[:-1]
    assert len({(wheel.torch, wheel.rocm) for wheel in knowledge.wheels}) == len(knowledge.wheels)


def test_no_two_rules_have_one_title_or_one_condition(knowledge: Knowledge) -> None:
    rules = knowledge.rules.values()

    assert len({rule.title for rule in rules}) == len(rules)
    assert len({repr((rule.when, rule.severity)) for rule in rules}) == len(rules)


ROOT = Path(__file__).resolve().parents[3]
CLAIMS = tomllib.loads((ROOT / "docs" / "claims.toml").read_text("utf-8"))["claim"]


def test_each_claim_is_there_once() -> None:
    assert len({claim["claim"] for claim in CLAIMS}) == len(CLAIMS)


def test_each_has_a_verdict_and_sources_that_exist(knowledge: Knowledge) -> None:
    for claim in CLAIMS:
        assert claim["verdict"] in {"true", "partly", "false", "outdated", "unproven"}, claim
        assert claim["answer"].endswith(".")
        assert claim["sources"]
        assert set(claim["sources"]) <= set(knowledge.sources), claim


def test_the_page_is_the_one_that_is_made_of_them() -> None:
    code = "import runpy; print(runpy.run_path('tools/claims.py')['page'](), end='')"
    made = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout

    assert (ROOT / "docs" / "claims.md").read_text("utf-8") == made
