"""The list of rules, and the whole story of one."""

from __future__ import annotations

import pytest

from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.rules import Condition, Rule
from rocsteady.doctor.knowledge.values import Confidence, Fix, Need, Severity, Source
from rocsteady.screens.doctor import render_rule, render_rule_list, typed

RULE = Rule(
    id="some-rule",
    title="Something is wrong",
    severity=Severity.RISKS,
    when=Condition(fact="os", present=True),
    summary="It is so.",
    why="One line\nand another.",
    fix=Fix(
        text="Do it.",
        commands=("bash --long-option " + "x" * 80,),
        windows=("powershell",),
        container=("docker",),
        needs=(Need.SUDO, Need.REBOOT),
        verify="look",
    ),
    confidence=Confidence.MAINTAINER,
    sources=("issue", "page"),
    confirmed_on=(),
)
SOURCES = {
    "issue": Source(
        owner="ROCm",
        name="HIP",
        number=12,
        title="It breaks",
        date="2025-11-04",
        url="https://github.com/ROCm/HIP/issues/12",
    ),
    "page": Source(owner="AMD", name="Docs", title="A page", date="2026"),
}


def test_the_whole_story_of_one_rule() -> None:
    assert render_rule(RULE, SOURCES, width=80, colour=False) == (
        "some-rule  risks\n"
        "Something is wrong.\n"
        "\n"
        "One line and another.\n"
        "\n"
        "What to do\n"
        "  Do it.\n"
        f"    bash --long-option {'x' * 80}\n"
        "  In a container:\n"
        "    docker\n"
        "  In PowerShell:\n"
        "    powershell\n"
        "  Needs: sudo, reboot.\n"
        "  To check that it worked: look\n"
        "\n"
        "Sources\n"
        "  Confidence: maintainer.\n"
        "  Confirmed on hardware: no, not by rocsteady's authors.\n"
        "  ROCm/HIP#12, 2025-11-04: It breaks\n"
        "    https://github.com/ROCm/HIP/issues/12\n"
        "  AMD/Docs, 2026: A page\n"
    )


def test_the_list_has_every_rule_once_under_its_severity(knowledge: Knowledge) -> None:
    told = render_rule_list(knowledge.rules.values(), width=80, colour=False)

    first_words = [line.split()[0] for line in told.splitlines() if line[:3].strip()]
    wanted = []
    for severity in Severity:
        of_it = [rule.id for rule in knowledge.rules.values() if rule.severity is severity]
        wanted += [severity.value.upper(), *of_it]
    assert first_words == wanted


@pytest.mark.parametrize("width", [40, 80, 100])
@pytest.mark.parametrize("colour", [True, False])
def test_every_page_fits_and_is_ascii(knowledge: Knowledge, width: int, *, colour: bool) -> None:
    pages = [render_rule_list(knowledge.rules.values(), width=width, colour=colour)]
    pages += [
        render_rule(rule, knowledge.sources, width=width, colour=colour)
        for rule in knowledge.rules.values()
    ]
    commands = {
        line
        for rule in knowledge.rules.values()
        for line in typed((*rule.fix.commands, *rule.fix.windows, *rule.fix.container))
    }

    for page in pages:
        assert page.isascii()
        assert ("\x1b" in page) is colour
        for line in page.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines():
            one_word = len(line.split()) == 1
            assert len(line) <= width or line.strip() in commands or one_word, line
