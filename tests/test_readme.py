"""The README shows what the program really says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_screen_in_the_readme_is_what_the_doctor_says() -> None:
    shown = re.search(
        r"\$ (rocsteady doctor --root .*)\n([\s\S]*?)```", (ROOT / "README.md").read_text()
    )
    assert shown is not None
    command = [sys.executable, "-m", *shlex.split(shown[1])]

    said = subprocess.run(command, capture_output=True, check=False, text=True, cwd=ROOT).stdout

    of_any_day = re.sub(r" +The knowledge base is \d+ days old\.[\s\S]*?--knowledge\n", "", said)
    changing = re.compile(
        r"(?<=\D)\d+ (?=rules)|^ +more +rocsteady explain gfx.*\n", re.MULTILINE
    )  # new sources
    in_readme, now = (changing.sub("", each) for each in (shown[2], of_any_day))
    assert in_readme == now
