"""The guard of a script's main module, read without torch."""

from __future__ import annotations

import pytest
from rocsteady_train.inside.heartbeat.training_facts import GUARD


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
