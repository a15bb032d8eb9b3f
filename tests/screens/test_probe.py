"""The table of probes and of a drill in 80 columns, and what they come to in words."""

from __future__ import annotations

import msgspec
import pytest
from samples import DRILL, LOST, PROBES, seen

from rocsteady.model import ProbeOutcome
from rocsteady.probe.values import ProbeLine
from rocsteady.screens.probe import (
    conclusion,
    render_drill,
    render_probe,
    render_stories,
    title_column,
)
from rocsteady.screens.screen import Page


def shown(*lines: ProbeLine) -> str:
    column = title_column(each.observation.title for each in lines)
    return "".join(render_probe(each, column=column, page=Page(80, colour=False)) for each in lines)


def test_what_went_wrong_is_said_on_one_line_of_its_text() -> None:
    raised = seen(
        "p", ProbeOutcome.EXCEPTION, tries=3, why="RuntimeError: bad\nmore of it", place="mm"
    )

    assert shown(raised) == "  ERROR    p  RuntimeError: bad after 3 backward passes, in mm\n"


def test_a_long_name_does_not_push_the_rest_off_the_page() -> None:
    long = seen("a-probe-with-a-name-that-is 4 workers, forkserver, pinned")

    assert all(len(each) <= 80 for each in shown(long, *PROBES).replace("_", "").splitlines())


@pytest.mark.parametrize(
    ("lines", "sentences"),
    [
        (PROBES, ["Attention backward hangs here with flash, but not with math."]),
        ((seen("compile", ProbeOutcome.CRASH), seen("import")), ["Compile crashes here."]),
        (
            (
                seen("matmul bf16", ProbeOutcome.WRONG),
                seen("matmul fp16", ProbeOutcome.WRONG),
                seen("matmul fp32"),
            ),
            ["Matmul computes wrong numbers here with bf16 or fp16, but not with fp32."],
        ),
        (
            (seen("import"), seen("ranks nccl", ProbeOutcome.NOT_RUN)),
            ["No failures in 1 probe; 1 not run."],
        ),
        ((seen("compile", ProbeOutcome.WENT_DOWN),), ["Compile crashed the machine."]),
        ((), []),
    ],
)
def test_the_conclusion_names_what_goes_wrong_and_what_does_not(
    lines: tuple[ProbeLine, ...], sentences: list[str]
) -> None:
    assert conclusion(lines) == sentences


def test_the_whole_story_has_figures_evidence_and_the_software() -> None:
    story = seen(
        "attention-backward flash",
        ProbeOutcome.HANG,
        tries=0,
        figures={"bytes a second": 2.5e9},
        evidence="/somewhere",
    )

    page = render_stories([story], "torch 2.10.0", page=Page(80, colour=False))

    for words in ("bytes a second 2.5e+09", "gfx1100, torch 2.9.1", "/somewhere"):
        assert words in page
    assert "No probes have run" in render_stories([], "torch 2.10.0", page=Page(80, colour=False))


def test_a_drill_counts_the_paths_that_changed() -> None:
    page = render_drill(
        msgspec.structs.replace(LOST, changed=tuple("abcdef")), page=Page(80, colour=False)
    )

    assert "a, b, c, d, e and 1 more." in " ".join(page.split())


def test_a_drill_fits_80_columns_whatever_was_done() -> None:
    hang, *rest = DRILL.faults
    worst = msgspec.structs.replace(
        hang, fault="hang:backward@20000", called="memory-access-fault", done="loader-forkserver",
        went_on_from=0,
    )  # fmt: skip
    result = msgspec.structs.replace(DRILL, faults=(worst, *rest), on_gpu=True)

    page = render_drill(result, page=Page(80, colour=False))

    assert max(map(len, page.splitlines())) <= 80
    assert "the start" in page
    assert "a real GPU" in page
