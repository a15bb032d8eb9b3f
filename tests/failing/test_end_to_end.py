"""What goes wrong below a script that nobody changed, and how the run still gets to its end.

Real torch, real processes; patience is shortened (``victims/hurried.py``). ``job.py`` is the
script, ``drivers.py`` what fails below it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

import pytest
from supervised import Ended

if TYPE_CHECKING:
    from conftest import Failing

pytestmark = pytest.mark.slow


def done(ended: Ended) -> bool:
    """Tell whether the job reached its last step."""
    return ended.code == 0 and "DONE" in ended.out


@pytest.mark.ci
def test_workers_that_hang_are_done_without(failing: Failing) -> None:
    """Field note C."""
    ended = failing.run("worker-lock")

    assert done(ended), ended.err
    assert set(failing.failures) == {"hang-in-loader"}
    assert failing.last_strategy() == {"workers": 0}
    assert len(ended.lines("hung")) == 3
    assert any("--with loader-inline" in line for line in ended.said)


def test_a_hang_in_attentions_backward_goes_away_with_math(failing: Failing) -> None:
    """Field note A."""
    ended = failing.run("attention-backward")

    assert done(ended), ended.err
    # The kernel that hangs is Python here, and so the innermost frame is not attention's own.
    assert set(failing.failures) == {"hang-in-backward"}
    assert failing.last_strategy() == {"attention": "math"}


def test_a_blas_handle_that_a_variable_takes_away(failing: Failing) -> None:
    """Field note B."""
    ended = failing.run("blas-handle", HIPBLASLT_WORKSPACE_SIZE=str(64 << 30))

    assert done(ended), ended.err
    assert failing.failures == ["blas-handle-failed"]
    assert failing.last_strategy() == {"variables": {"HIPBLASLT_WORKSPACE_SIZE": None}}


def test_a_variable_that_cancels_the_allocators_settings(failing: Failing) -> None:
    """Field note D."""
    ended = failing.run(
        "no-caching",
        PYTORCH_NO_HIP_MEMORY_CACHING="1",
        PYTORCH_HIP_ALLOC_CONF="garbage_collection_threshold:0.8",
    )

    assert done(ended), ended.err
    assert set(failing.failures) == {"oom-fragmentation"}
    assert failing.last_strategy() == {"variables": {"PYTORCH_NO_HIP_MEMORY_CACHING": None}}


def test_memory_in_pieces_is_gone_with_its_process(failing: Failing) -> None:
    """Field note D."""
    ended = failing.run("fragments")

    assert done(ended), ended.err
    assert set(failing.failures) == {"oom-fragmentation"}
    assert "fresh-process" in failing.remedies


def test_memory_in_pieces_without_a_checkpoint_is_said_plainly(failing: Failing) -> None:
    ended = failing.run("fragments", "--no_checkpoints")

    assert ended.code == 76, ended.err
    said = [message["text"] for message in failing.story["messages"]]
    assert any(text.startswith("not tried: fresh-process: ") for text in said), said


def test_a_compile_that_dies(failing: Failing) -> None:
    ended = failing.run("compile-dies", "--compile")

    assert done(ended), ended.err
    assert failing.failures == ["compile-failure"]
    assert failing.last_strategy() == {"compile": False}


def test_nan_with_a_short_exponent(failing: Failing) -> None:
    ended = failing.run("overflow", "--precision", "fp16", options=("--also", "precision-bf16"))

    assert done(ended), ended.err
    assert set(failing.failures) == {"nan-loss"}
    assert failing.last_strategy() == {"precision": "bf16"}


def test_what_nothing_mends_ends_within_its_budget(failing: Failing) -> None:
    ended = failing.run("always")

    assert ended.code == 76, ended.err
    assert set(failing.failures) == {"abort"}
    assert len(failing.failures) <= 8
    assert len(ended.lines("gave up")) == 1


@pytest.mark.ci
def test_the_scripts_own_error_ends_it_at_once(failing: Failing) -> None:
    ended = failing.run("own-bug")

    assert ended.code == 1
    assert failing.failures == ["script-error"]
    assert "KeyError: 'learning_rate'" in ended.err
    assert len(ended.lines("crashed")) == 1
    assert "in step" in failing.story["failures"][0]["failure"]["traceback"]


def test_what_took_the_machine_down_is_not_tried_again(failing: Failing) -> None:
    """Field note E."""
    first = failing.run("own-bug", options=("--no-workarounds",))
    assert first.code == 1
    database = failing.project.folder / ".rocsteady" / "journal.db"
    with contextlib.closing(sqlite3.connect(database)) as connection:  # as after a sudden reboot
        connection.execute("UPDATE intents SET outcome = NULL, boot_id = 'an-earlier-boot'")
        connection.execute("UPDATE runs SET ended = NULL, boot_id = 'an-earlier-boot'")
        connection.commit()

    failing.project.name = "after-the-reboot"
    again = failing.run("own-bug")

    assert again.code == 76, again.err
    assert any("the machine crashed while running: " in line for line in again.said), again.err
    assert failing.story["attempts"] == []
    failing.project.name = "all-the-same"
    assert failing.run("own-bug", options=("--again",)).code == 1


@pytest.mark.ci
def test_what_helped_is_offered_at_the_next_start(failing: Failing) -> None:
    assert done(failing.run("blas-handle", HIPBLASLT_WORKSPACE_SIZE=str(64 << 30)))

    failing.project.name = "next-time"
    told = failing.run("blas-handle")
    offered = [line for line in told.said if "--with unset-variable" in line]

    assert offered
    failing.project.name = "with-it"
    assert failing.run("blas-handle", options=("--with", "unset-variable")).code == 0
    assert failing.failures == []
