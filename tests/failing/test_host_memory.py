"""Too many DataLoader workers for a container's memory: the kernel kills, the run goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from supervised import until

from rocsteady.hangs.looking.cgroups import UNIFIED, folders

if TYPE_CHECKING:
    from conftest import Failing

pytestmark = pytest.mark.slow

WORKERS = 8  # each comes to hold about 110 MB
LIMIT = 900 << 20  # bytes: for half of them, with the trainer and rocsteady itself
ENTER = 'echo $$ > "$0" && exec "$@"'  # as what starts a container does it
V1, V2 = "memory.limit_in_bytes", "memory.max"


@pytest.fixture
def group() -> Iterator[Path]:
    """Give a control group with a limit, of whichever version there is."""
    made = next(filter(None, map(_made, _parents())), None)
    if made is None:
        pytest.skip("needs the right to make a memory control group")
    try:
        yield made
    finally:
        until(lambda: not (made / "cgroup.procs").read_text(), 10.0)
        made.rmdir()


def _parents() -> Iterator[Path]:
    """Yield where one may be made: of version 2 only where memory is handed down."""
    own = folders(os.getpid())
    if "memory" in own:
        yield own["memory"]
    elif UNIFIED in own:
        for folder in (own[UNIFIED], *own[UNIFIED].parents):
            handed_down = folder / "cgroup.subtree_control"
            if handed_down.exists() and "memory" in handed_down.read_text():
                yield folder


def _made(parent: Path) -> Path | None:
    made = parent / f"test-host-memory-{os.getpid()}"
    try:
        made.mkdir()
        (made / (V1 if (made / V1).exists() else V2)).write_text(str(LIMIT))
    except OSError:
        if made.is_dir():
            made.rmdir()
        return None
    return made


def killed(group: Path) -> int:
    """Count what the kernel killed for memory."""
    name = "memory.oom_control" if (group / V1).exists() else "memory.events"
    counts = dict(line.split() for line in (group / name).read_text().splitlines())
    return int(counts["oom_kill"])


def test_half_as_many_workers_fit(failing: Failing, group: Path) -> None:
    failing.project.program = (
        *("sh", "-c", ENTER, str(group / "cgroup.procs")),
        *failing.project.program,
    )

    ended = failing.run("hungry-workers", "--workers", str(WORKERS))

    assert ended.code == 0, ended.err
    assert "DONE" in ended.out
    assert killed(group) > 0
    assert set(failing.failures) == {"oom-host"}
    if os.access("/dev/kmsg", os.R_OK):
        seen = failing.story["failures"][0]["failure"]["seen"]
        assert any("out of memory: Killed process" in line for line in seen), seen
    strategy = failing.last_strategy()
    assert strategy.pop("workers") == WORKERS // 2
    assert strategy in ({}, {"prefetch_factor": 1})  # kept only if the run came further with it
    assert "loader-less-prefetch" in failing.remedies  # cheaper, so it comes first
    assert "loader-fewer-workers" in failing.remedies
