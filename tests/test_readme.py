"""The picture of the doctor in the README shows what the program really says."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_picture_of_the_doctor_is_what_it_says() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"`(rocsteady doctor --root .*)`", readme)
    assert shown is not None
    assert "docs/pictures/doctor.svg" in readme
    picture = (ROOT / "docs/pictures/doctor.svg").read_text(encoding="utf-8")
    drawn = squeezed(html.unescape("".join(re.findall(r"<text[^>]*>(.*?)</text>", picture))))

    said = subprocess.run(
        [sys.executable, "-m", *shown[1].split()],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "108"},
    ).stdout

    for line in said.splitlines():
        # The marks are letters in a pipe; counts and the age of the entries change with the data.
        if not line.lstrip().startswith(("more ", "The knowledge base is")):
            assert squeezed(re.sub(r"^\[.\]", "", line)) in drawn


def squeezed(text: str) -> str:
    return "".join(text.split())
