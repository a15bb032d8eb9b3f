"""The pages about single GPUs: one each, found as people search, every statement with a source."""

from __future__ import annotations

import re
import time

from gpu_pages import GpuPages

from rocsteady.doctor.gpu_reports import gpu_reports, more_line
from rocsteady.doctor.knowledge.reader import Knowledge


def test_every_gpu_has_a_page_that_people_find(knowledge: Knowledge) -> None:
    start = time.perf_counter()
    pages = dict(GpuPages(knowledge).files())

    assert time.perf_counter() - start < 20
    assert len(pages) == len(knowledge.arches) + 1 > 20
    assert "# PyTorch training on RX 9070 XT (gfx1201)" in pages["gfx1201.md"]
    assert "# PyTorch training on RX 7900 XTX (gfx1100)" in pages["gfx1100.md"]
    assert all(f"({gfx})" in pages[f"{gfx}.md"] for gfx in knowledge.arches)


def test_every_statement_names_its_source(knowledge: Knowledge) -> None:
    for name, text in GpuPages(knowledge).files():
        known = text.partition("## PyTorch builds")[2].partition("## Threads")[0]
        statements = re.split(r"^### ", known, flags=re.MULTILINE)[1:]
        statements += re.findall(r"^- .*", text, re.MULTILINE)
        found = r"\]\(http|Sources: |\]\(gfx\w+\.md\)"  # the index leads to the page that has them
        assert all(re.search(found, each) for each in statements), name


def test_a_rule_of_another_gpu_is_not_on_the_page(knowledge: Knowledge) -> None:
    rules = {rule.id for rule in gpu_reports("gfx1201", knowledge).rules}

    assert "rdna4-training-faults" in rules
    assert not rules & {"gfx1151-kernel", "stream-k-deadlock", "gfx90a-scratch-reclaim"}


def test_the_doctor_points_at_a_gpu_only_if_something_is_known_of_it(knowledge: Knowledge) -> None:
    assert "explain gfx1201" in more_line("gfx1201", knowledge)
    assert more_line("", knowledge) == ""
