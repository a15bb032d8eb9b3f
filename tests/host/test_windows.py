"""What Windows would be told, as far as it can be tried elsewhere. Never run on Windows itself."""

from __future__ import annotations

import subprocess
import sys

from rocsteady.host import windows


def test_a_child_is_ended_and_one_that_is_gone_is_fine() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    assert not windows.has_ended(child)
    windows.kill_session(child.pid)
    child.wait(10)

    assert windows.has_ended(child)
    windows.kill_session(child.pid)
