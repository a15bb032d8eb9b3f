"""The decision page: everything from the plan, in order, safe to send and to open."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from builders import HOUR, option, pace
from builders import plan as plan_of
from msgspec.structs import replace

from rocsteady.model import Risk
from rocsteady.plan.decision import Change, tipping_points
from rocsteady.plan.values import Basis, Finish, Option, Plan, Price
from rocsteady.report.pages import render_template
from rocsteady.screens.decision_page import (
    HTML,
    MARKDOWN,
    DecisionPage,
    decision_page,
)

if TYPE_CHECKING:
    from tests.conftest import Expected

MADE = 1_794_700_800.0  # Sunday, 15 November 2026, 00:00 UTC
DAY = 24 * HOUR
EXPECTED = Path(__file__).parent / "plans"


def decision_html(page: DecisionPage) -> str:
    return render_template(HTML, page=page)


def decision_markdown(page: DecisionPage) -> str:
    return render_template(MARKDOWN, page=page)


def made(**more: object) -> Plan:
    first = replace(
        option(10.0, chance=0.99),
        title="GPU, no loader processes",
        pace=pace(2.0),
        finish=Finish(seconds=10 * HOUR, early=9 * HOUR, late=12 * HOUR, in_time=0.99, lost=0.5),
        do="rocsteady run --plan 1",
        rests_on=("trial, 60 steps in 30 s.",),
    )
    cloud = replace(
        option(
            8.0, chance=0.95, basis=Basis.ESTIMATE, name="cloud-x", cost=(8.0, 40.0), risk=Risk.LOW
        ),
        pace=pace(4.0),
        setup=(60.0, 120.0),
        price=Price(dollars=2.0, as_of="2026-08-22", source="https://a.example", old=True),
        sources=("amd-mgpu", "nobody"),
    )
    slow = option(60.0, chance=0.2, name="cpu")
    out = Option(id="gpu", title="GPU, unchanged", basis=Basis.RULED_OUT, rests_on=("it hangs.",))
    fields: dict[str, object] = {
        "rocsteady": "1.0",
        "made": MADE,
        "folder": "/p",
        "software": "GPU gfx1100; torch 2.9",
        "total": 72_000,
        "left": 72_000,
        "deadline": MADE + 2 * DAY,
        "budget": 10.0,
        "trials": 2,
        "trial_seconds": 60.0,
        "ruled_out": (out,),
        "take": "Recommended: option 1.",
        "recommended": 1,
    }
    return plan_of(first, cloud, slow, **{**fields, **more})


def paged(plan: Plan) -> DecisionPage:
    return decision_page(plan, now=plan.made, zone=UTC)


def found(plan: Plan) -> dict[tuple[Change, int], float | None]:
    """Return the thresholds of what would change the decision."""
    return {(it.change, it.option.number): it.threshold for it in tipping_points(plan)}


def section(page: DecisionPage, title: str) -> list[str]:
    found = next(each for each in page.sections if each.title == title)
    return [*found.items, *(" | ".join(row) for row in found.rows)]


def today(page: DecisionPage) -> list[str]:
    return [" ".join((todo.text, *todo.commands)) for todo in page.today]


def test_an_option_that_is_set_up_first_and_has_an_old_price_says_so_in_todays_list() -> None:
    plan = made()
    cloud = replace(plan.options[1], number=1, do="rocsteady plan --export skypilot --option 1")
    page = paged(replace(plan, options=(cloud,), not_tried=plan.ruled_out))

    assert today(page) == [
        "Measure the other options: rocsteady plan --within 15m",
        "Check the price of option 1; it is of 22 Aug 2026.",
        "Set up option 1: 1-2 h of manual work.",
        "Start option 1: rocsteady plan --export skypilot --option 1",
        "After an hour, compare its pace and its end with this page: rocsteady status",
    ]
    assert section(page, "Timeline")[:2] == [
        "Sun 15 Nov 2026 00:00 UTC | Set-up of option 1",
        "Sun 15 Nov 2026 01:30 UTC | Training starts, after the set-up (1-2 h)",
    ]
    unknown = paged(replace(plan, options=(replace(cloud, setup=None),)))
    assert section(unknown, "Timeline")[1].endswith("after the set-up (4 h, assumed)")


def test_what_is_unknown_is_said_first() -> None:
    page = paged(made(left=None, deadline=None, machine="m.json", options=(), take=""))

    assert page.summary == "No option is left: all are ruled out."
    assert ("Machine", "m.json (recorded): GPU gfx1100; torch 2.9") in page.facts
    assert [
        name in line
        for name, line in zip(("total", "deadline", "rocsteady doctor"), today(page), strict=True)
    ] == [True] * 3


def test_what_would_change_the_decision_is_in_figures() -> None:
    assert found(made()) == {
        (Change.PACE, 1): pytest.approx(72_000 / (DAY * 2 * 0.5)),
        (Change.ESTIMATE, 2): pytest.approx(72_000 / (8.5 * HOUR)),
    }


def test_a_rented_option_says_from_which_price_on_it_is_not_taken() -> None:
    plan = made()
    cloud = replace(
        plan.options[1],
        number=1,
        finish=Finish(seconds=8 * HOUR, early=7 * HOUR, late=9.5 * HOUR, in_time=0.95),
    )
    points = found(replace(plan, options=(cloud, plan.options[2])))

    assert points[Change.PRICE, 1] == pytest.approx(10 / 8)


def test_a_page_without_a_recommendation_says_what_would_give_one() -> None:
    plan = made(take="No recommendation: nothing was tried.", recommended=0, trials=0)
    cloud = replace(plan.options[1], number=1, do="rocsteady plan --export skypilot --option 1")
    page = paged(replace(plan, options=(cloud,), not_tried=plan.ruled_out))

    assert today(page) == ["Measure the options, which cannot be compared yet: rocsteady plan"]
    assert "--export" not in decision_markdown(page)
    assert today(paged(replace(plan, trials=1)))[-1].endswith(": rocsteady plan --within 15m")


def test_dates_have_their_year_and_zone_and_a_deadline_that_is_past_says_so() -> None:
    plan = made(deadline=MADE - HOUR)
    page = decision_page(plan, now=MADE, zone=timezone(timedelta(hours=-3, minutes=-30)))

    facts = dict(page.facts)
    assert facts["Deadline"] == "Sat 14 Nov 2026 19:30 UTC-03:30, which is in the past"
    assert facts["Plan made"].startswith("Sat 14 Nov 2026 20:30 UTC-03:30, by rocsteady")
    assert " | Sun 15 Nov 2026 06:30 UTC-03:30 | " in section(page, "Options")[1]


def test_what_the_trials_ran_with_is_named() -> None:
    facts = dict(paged(made(software="GPU none; torch none; Python none")).facts)

    assert facts["Machine"] == "GPU none; torch none; Python none"
    assert facts["Measured"].startswith("2 trials with python, 60 s")


def test_the_last_moment_to_start_each_option_that_is_on_time_is_a_date() -> None:
    dates = [row for row in section(paged(made()), "Timeline") if "Last moment" in row]

    assert dates == [
        "Mon 16 Nov 2026 12:00 UTC | Last moment to start option 1",
        "Mon 16 Nov 2026 16:00 UTC | Last moment to start option 2 instead",
    ]


def test_markdown_of_others_has_no_effect() -> None:
    evil = "![x](http://a.example/p.png) **b** @someone fixes #1"
    plan = made()
    variant = replace(plan.options[0], changes=evil, title=evil)

    text = decision_markdown(paged(replace(plan, options=(variant,))))

    assert "| `![x](http://" in text
    assert not [line for line in text.split("\n") if "![x]" in line and "`" not in line]
    assert "- amd-mgpu: https://" in decision_markdown(paged(plan))


def test_sources_have_their_addresses_and_an_old_plan_its_age() -> None:
    plan = made()
    page = decision_page(plan, now=plan.made + DAY, zone=UTC)

    assert section(page, "Sources")[0].startswith("amd-mgpu: https://rocm.docs.amd.com/")
    assert section(page, "Sources")[1] == "nobody"
    assert section(page, "Notes")[0] == "The plan was 24 h old when this page was written."


class Tags(HTMLParser):
    """Collects the elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.found.add(tag)


@pytest.mark.parametrize("render", [decision_html, decision_markdown])
def test_a_page_is_redacted_and_takes_no_markup_of_others(render: object) -> None:
    evil = "<script>alert(1)</script> | a\n# b \x1b[2J"
    plan = made(
        command=("python", "train.py", "--token", "hf_abcdefghijklmnopqrstuvwxyz0123456789"),
        take=evil,
        warnings=("written to /home/someone/secret",),
    )

    text = render(paged(plan))  # type: ignore[operator] # one of two functions

    assert "hf_abc" not in text
    assert "someone" not in text
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\n# b" not in text or render is decision_html


def test_the_html_is_one_file_without_scripts_and_addresses_to_fetch() -> None:
    text, tags = decision_html(paged(made())), Tags()
    tags.feed(text)

    assert {"main", "h1", "h2", "table", "ul", "dl", "style"} <= tags.found
    assert not {"script", "img", "link", "iframe"} & tags.found
    assert "script-src 'none'" in text


def test_the_markdown_is_as_expected(expected: Expected) -> None:
    expected(EXPECTED / "decision.md", decision_markdown(paged(made())))
