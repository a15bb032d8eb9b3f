"""The exception that ended a script is told with its true type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rocsteady_train.inside import wire

from rocsteady.hangs.heartbeat_pages import read_raised

if TYPE_CHECKING:
    from tests.inside.conftest import Inside


@pytest.mark.slow
def test_type_bases_place_and_text(inside: Inside, torch_python: str) -> None:
    script = inside.script("""
        import torch
        def step():
            torch.ones(2).view(3)
        class Ours(torch.OutOfMemoryError):
            pass
        try:
            step()
        except RuntimeError:
            raise Ours("HIP out of memory. Tried to allocate 2.00 GiB")
    """)

    done = inside.run(torch_python, script)
    (told,) = read_raised(inside.injection.pages)

    assert done.code == 1
    assert b"raised.py" not in done.err
    assert told.type == "__main__.Ours"
    assert told.bases[:2] == ("torch.OutOfMemoryError", "RuntimeError")
    assert told.message == "HIP out of memory. Tried to allocate 2.00 GiB"
    assert told.place == "train.py:10 <module>"
    assert "in step" in told.traceback


@pytest.mark.slow
def test_nothing_is_told_by_a_script_that_ends_well(inside: Inside, torch_python: str) -> None:
    inside.run(torch_python, inside.script("import torch\nimport sys\nsys.exit(3)\n"))

    assert read_raised(inside.injection.pages) == ()


def test_what_is_not_ours_is_passed_over(tmp_path: Path) -> None:
    told = {"version": wire.RAISED_VERSION, "rank": "", "type": "ValueError", "bases": []}
    told |= {"message": "m", "place": "p", "traceback": "t"}
    for pid, content in enumerate(
        (
            json.dumps({**told, "at": 2.0}),
            json.dumps({**told, "at": 1.0, "type": "KeyError"}),
            json.dumps({**told, "at": 1.0, "version": 99}),
            "not json",
            json.dumps([1]),
        )
    ):
        (tmp_path / f"{pid}{wire.RAISED_SUFFIX}").write_text(content)
    (tmp_path / f"99{wire.RAISED_SUFFIX}").symlink_to("/etc/passwd")

    assert [raised.type for raised in read_raised(tmp_path)] == ["KeyError", "ValueError"]
    assert read_raised(tmp_path / "nowhere") == ()
