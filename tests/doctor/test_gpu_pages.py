"""The pages about single GPUs: one each, found as people search, every statement with a source."""

from __future__ import annotations

import re
import time

from gpu_pages import GpuPages

from rocsteady.doctor.gpu_reports import gpu_reports, more_line
from rocsteady.doctor.knowledge.observations import Cell, FailureCount
from rocsteady.doctor.knowledge.reader import Knowledge

CELL = Cell(
    gfx="gfx1201",
    torch="2.13",
    rocm="7.2",
    system="linux",
    people=41,
    first="2026-11",
    last="2027-01",
    failures=(
        FailureCount(kind="hang-in-loader", people=12, first="2026-11", helped={"retry": 9}),
        FailureCount(kind="gpu-hang", people=2, first="2026-12"),
    ),
)


def test_every_gpu_has_a_page_that_people_find(knowledge: Knowledge) -> None:
    start = time.perf_counter()
    pages = dict(GpuPages(knowledge, ()).files())

    assert time.perf_counter() - start < 20
    assert len(pages) == len(knowledge.arches) + 1 > 20
    assert "# PyTorch training on RX 9070 XT (gfx1201)" in pages["gfx1201.md"]
    assert "# PyTorch training on RX 7900 XTX (gfx1100)" in pages["gfx1100.md"]
    assert all(f"({gfx})" in pages[f"{gfx}.md"] for gfx in knowledge.arches)


def test_every_statement_names_its_source(knowledge: Knowledge) -> None:
    for name, text in GpuPages(knowledge, ()).files():
        known = text.partition("## PyTorch builds")[2].partition("## What people")[0]
        statements = re.split(r"^### ", known, flags=re.MULTILINE)[1:]
        statements += re.findall(r"^- .*", text, re.MULTILINE)
        found = r"\]\(http|Sources: |\]\(gfx\w+\.md\)"  # the index leads to the page that has them
        assert all(re.search(found, each) for each in statements), name


def test_a_failure_is_stated_with_counts_if_enough_people_had_it(knowledge: Knowledge) -> None:
    page = dict(GpuPages(knowledge, (CELL,)).files())["gfx1201.md"]
    reported = page.partition("## What people reported")[2].partition("## Threads")[0]

    assert "12 of 41 people" in reported
    assert "9 of 12" in reported
    assert ": 2 of 41" not in reported


def test_a_rule_of_another_gpu_is_not_on_the_page(knowledge: Knowledge) -> None:
    rules = {rule.id for rule in gpu_reports("gfx1201", knowledge, ()).rules}

    assert "rdna4-training-faults" in rules
    assert not rules & {"gfx1151-kernel", "stream-k-deadlock", "gfx90a-scratch-reclaim"}


def test_the_doctor_points_at_a_gpu_only_if_something_is_known_of_it(knowledge: Knowledge) -> None:
    assert "explain gfx1201" in more_line("gfx1201", knowledge)
    assert more_line("", knowledge) == ""
