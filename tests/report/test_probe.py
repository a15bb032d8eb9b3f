"""The table of probes in 80 columns, and what it comes to in words."""

from __future__ import annotations

import pytest

from rocsteady.model import Observation, ProbeOutcome
from rocsteady.screens.probe import (
    ProbeLine,
    conclusion,
    render_probe,
    render_stories,
    title_column,
)


def line(
    title: str,
    outcome: ProbeOutcome = ProbeOutcome.OK,
    tries: int = 200,
    why: str = "",
    **more: object,
) -> ProbeLine:
    name, _, variant = title.partition(" ")
    observation = Observation(
        probe=name, variant=variant, outcome=outcome, tries=tries, seconds=1.9, why=why,
        **more,  # type: ignore[arg-type] # as the test says
    )  # fmt: skip
    return ProbeLine(observation=observation, what="backward passes", one_in=67)


LINES = (
    line("import", tries=1),
    line("matmul-gradient bf16", worst=0.4),
    line(
        "attention-backward flash",
        ProbeOutcome.HANG,
        0,
        "at try 1, ended after 10 s",
        place="_scaled_dot_product_flash_attention_backward",
    ),
    line("attention-backward math"),
    line("ranks nccl", ProbeOutcome.NOT_RUN, 0, "1 GPU"),
)


def shown(*lines: ProbeLine, width: int = 80, colour: bool = False) -> str:
    column = title_column(each.title for each in lines)
    return "".join(render_probe(each, column=column, width=width, colour=colour) for each in lines)


def test_a_line_a_probe_in_80_columns() -> None:
    assert shown(*LINES) == (
        "  ok       import                    1.9 s\n"
        "  ok       matmul-gradient bf16      0 failures in 200 backward passes; error\n"
        "                                     0.4 of its bound\n"
        "  HANG     attention-backward flash  at try 1, ended after 10 s, stuck in\n"
        "                                     _scaled_dot_product_flash_attention_backward\n"
        "  ok       attention-backward math   0 failures in 200 backward passes\n"
        "  not run  ranks nccl                1 GPU\n"
    )


def test_colour_only_where_it_is_wanted() -> None:
    assert "\x1b[1;31m" in shown(*LINES, colour=True)
    assert "\x1b" not in shown(*LINES)


def test_what_went_wrong_is_said_on_one_line_of_its_text() -> None:
    raised = line("p", ProbeOutcome.EXCEPTION, 3, "RuntimeError: bad\nmore of it", place="mm")

    assert shown(raised) == "  ERROR    p  RuntimeError: bad after 3 backward passes, in mm\n"


def test_a_long_name_does_not_push_the_rest_off_the_page() -> None:
    long = line("a-probe-with-a-name-that-is 4 workers, forkserver, pinned")

    assert all(len(each) <= 80 for each in shown(long, *LINES).replace("_", "").splitlines())


def test_the_conclusion_names_what_goes_wrong_and_what_does_not() -> None:
    assert conclusion(LINES) == ["Attention backward hangs here with flash, but not with math."]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            (line("compile", ProbeOutcome.CRASH), line("import")),
            ["Compile crashes here."],
        ),
        (
            (
                line("matmul bf16", ProbeOutcome.WRONG),
                line("matmul fp16", ProbeOutcome.WRONG),
                line("matmul fp32"),
            ),
            ["Matmul gives wrong results here with bf16 or fp16, but not with fp32."],
        ),
        (
            (line("import"), line("ranks nccl", ProbeOutcome.NOT_RUN)),
            ["No failures in 1 probe; 1 not run."],
        ),
        (
            (line("churn", ProbeOutcome.WENT_DOWN),),
            ["Churn crashed the machine."],
        ),
        ((), []),
    ],
)
def test_each_outcome_has_its_words(lines: tuple[ProbeLine, ...], said: list[str]) -> None:
    assert conclusion(lines) == said


def test_the_whole_story_says_what_it_is_true_of() -> None:
    story = line(
        "attention-backward flash",
        ProbeOutcome.HANG,
        0,
        "at try 1",
        figures={"bytes a second": 2.5e9},
        software="torch 2.9.1",
        evidence="/somewhere",
    )

    told = render_stories([story], "torch 2.10.0", width=80, colour=False)

    assert "attention-backward flash  hang" in told
    assert "bytes a second 2.5e+09" in told
    assert "other software     torch 2.9.1" in told
    assert "/somewhere" in told


def test_the_bound_is_part_of_the_whole_story_only() -> None:
    fine = line("attention-backward math")
    told = render_stories([fine], "torch 2.10.0", width=80, colour=False)

    assert "fewer than 1 in 67 fails, with 95 % confidence" in told
    assert "fewer than" not in shown(fine)


def test_where_nothing_was_tried_that_is_said() -> None:
    assert "No probes have run" in render_stories([], "torch 2.10.0", width=80, colour=False)
