"""What overrides rest on and what needs no torch: names in stacks, and the guard of a script."""

from __future__ import annotations

import pytest

from rocsteady.inside.heartbeat.loader_facts import GUARD
from rocsteady.inside.heartbeat.script_end import PASSED_OVER
from rocsteady.inside.overrides import prefetch, prefetch_thread
from rocsteady.knowledge.waits import load_waits


@pytest.mark.parametrize(
    "function",
    [
        prefetch_thread.LoadingThread._run,
        prefetch_thread.Fetch.__call__,
        prefetch._Ahead.next,
        prefetch._Ahead._try,
        prefetch._Ahead._take,
    ],
)
def test_a_thread_that_loads_is_not_taken_for_one_of_ours_that_only_serves(
    function: object,
) -> None:
    file = function.__code__.co_filename  # type: ignore[attr-defined]
    known = load_waits()

    assert file == PASSED_OVER
    assert not known.helper("python", [f"_run ({file}:113)"], [])
    assert known.helper("python", ["note (_rocsteady_inside/page.py:20)"], [])


@pytest.mark.parametrize(
    ("line", "guards"),
    [
        (b'if __name__ == "__main__":', True),
        (b"if __name__=='__main__': main()", True),
        (b"if (__name__ == '__main__'):", True),
        (b'if "__main__" == __name__:  # start', True),
        (b'if __name__ == "__main__" and not DRY:', True),
        (b'if __name__ != "__main__":', False),
        (b"if name == '__main__':", False),
        (b"iffy(__name__ == '__main__')", False),
        (b'    if __name__ == "__main__":', False),
        (b"main()", False),
    ],
)
def test_the_guard_of_a_main_module(line: bytes, guards: bool) -> None:  # noqa: FBT001 - expected
    assert (GUARD.match(line) is not None) is guards
