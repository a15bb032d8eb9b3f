"""A page is drawn whole, as a real terminal shows it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

TMUX = shutil.which("tmux")
PAGES = ["old" * 6 + "\nold\nold\nold", "1" * 20 + "\nab\n" + "3" * 20]
SCRIPT = f"""
import time
from rocsteady.system.full_screen import FullScreen
with FullScreen() as screen:
    for page in {PAGES!r}:
        screen.draw(page)
    time.sleep(60)
"""


@pytest.mark.skipif(TMUX is None, reason="needs tmux")
def test_a_line_as_wide_as_the_terminal_keeps_its_last_character(tmp_path: Path) -> None:
    script = tmp_path / "draws.py"
    script.write_text(SCRIPT)

    def tmux(*words: str) -> str:
        command = [str(TMUX), "-S", str(tmp_path / "socket"), "-f", "/dev/null", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    tmux("new-session", "-d", "-x", "20", "-y", "5", f"{sys.executable} {script}")
    try:
        deadline = time.monotonic() + 30
        while "ab" not in (shown := tmux("capture-pane", "-p")) and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        tmux("kill-server")
    assert shown.splitlines()[:4] == ["1" * 20, "ab", "3" * 20, ""]
