"""The picture of the README shows what the program says, and links of pages lead somewhere."""

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


TO_A_FILE = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def test_each_link_leads_to_what_is_in_a_checkout() -> None:
    command = ("git", "ls-files", "-z")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    files = [Path(name) for name in listed.stdout.decode().split("\0")]
    there = {*files, *(above for file in files for above in file.parents)}
    pages = [
        file for file in files if file.suffix == ".md" and file.parts[0] in ("docs", file.name)
    ]
    lost = [
        (str(page), link)
        for page in pages
        for link in TO_A_FILE.findall((ROOT / page).read_text())
        if Path(os.path.normpath(page.parent / link)) not in there
    ]

    assert len(pages) > 50
    assert lost == []
