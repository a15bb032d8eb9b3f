"""The table of a drill, in 80 columns."""

from __future__ import annotations

import msgspec

from rocsteady.screens.probe import DrillResult, FaultResult, render_drill

HANG = FaultResult(
    fault="hang:backward@200",
    fired=True,
    step=200,
    attempt=1,
    seen_after=9.81,
    called="hang-in-backward",
    done="retried without changes",
    went_on_from=180,
    survived=True,
)
KILL = FaultResult(
    fault="kill@500",
    fired=True,
    step=500,
    attempt=2,
    seen_after=0.04,
    called="killed",
    done="retried without changes",
    went_on_from=480,
    survived=True,
)
RESULT = DrillResult(
    command=("python", "train.py"),
    faults=(HANG, KILL),
    can_resume=True,
    ended="ended after the last fault",
    not_tried=("oom", "segv"),
    changed=(),
    on_gpu=True,
)


def shown(result: DrillResult, width: int = 80) -> str:
    return render_drill(result, width=width, colour=False)


def test_a_drill_that_was_survived() -> None:
    assert shown(RESULT) == (
        "fault              detected in  identified as     action              resumed at\n"
        "hang:backward@200  9.8 s        hang-in-backward  retried without     step ~180\n"
        "                                                  changes\n"
        "kill@500           40 ms        killed            retried without     step ~480\n"
        "                                                  changes\n"
        "\n"
        "The script survived 2 of 2 faults; about 38 steps were repeated. Your own files\n"
        "were not touched.\n"
        "Not tried: oom, segv, faults of a real GPU.\n"
    )


def test_without_a_gpu_none_is_mentioned() -> None:
    assert "GPU" not in shown(msgspec.structs.replace(RESULT, on_gpu=False))


def test_what_is_not_good_is_said() -> None:
    nan = FaultResult(
        fault="nan@800",
        fired=True,
        step=800,
        attempt=3,
        seen_after=0.2,
        called="nan-loss",
        done="the script continued",
    )
    missed = FaultResult(fault="oom:aten::_scaled_dot_product_attention@9", fired=False)
    result = msgspec.structs.replace(
        RESULT,
        faults=(KILL, nan, missed),
        can_resume=False,
        changed=("a", "b", "c", "d", "e", "f"),
        kept="/state/drills/x",
    )

    page = shown(result)
    words = " ".join(page.split())

    assert "oom:aten::_scaled_dot_product_attention@9" in page
    assert "not reached" in words
    assert "The script survived 1 of 3 faults; about 19 steps were repeated." in words
    assert "rocsteady does not know how this script resumes" in words
    assert "The loss stayed NaN" in words
    assert "Changed in this folder: a, b, c, d, e and 1 more." in words
    assert page.endswith("/state/drills/x\n")


def test_a_folder_that_could_not_be_looked_over_is_not_said_to_be_as_before() -> None:
    page = shown(msgspec.structs.replace(RESULT, changed=None))

    assert "not touched" not in page
    assert "too many files" in " ".join(page.split())


def test_it_fits_80_columns_whatever_was_done() -> None:
    worst = msgspec.structs.replace(
        HANG, fault="hang:backward@20000", called="memory-access-fault", done="loader-forkserver"
    )
    begun = msgspec.structs.replace(KILL, went_on_from=0)

    page = shown(msgspec.structs.replace(RESULT, faults=(worst, begun)))

    assert max(map(len, page.splitlines())) <= 80
    assert "the start" in page


def test_the_last_line_says_what_to_type() -> None:
    page = shown(msgspec.structs.replace(RESULT, kept="/x", next_command="rocsteady run"))

    assert page.endswith("  /x\nnext: rocsteady run\n")
