"""Take every picture of the docs anew, from real runs: ``nox -s screenshot``.

First-run.svg shows ``examples/first_run`` as a terminal has it; tracebacks of the script are folded
to one line. The pages of the five field notes are drawn at each width and in each scheme, the full
screen in two sizes. It needs tmux, and Chromium for the pages.
"""

from __future__ import annotations

import argparse
import io
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.text import Text
from screenshot_page import draw, start_browser
from story_runs import (
    STORIES,
    Story,
    carry_out,
    prepare,
    rocsteady,
    said_by,
    until_step,
)

HERE = Path(__file__).parent
PICTURES, PAGES = HERE / "pictures", HERE / "_build" / "pages"
RUNS = PICTURES / "runs"
FIRST = Story(name="calm-otter", example="first_run")
PREFIX = "rocsteady: "
WARNS = re.compile(r"/\S+\.py:\d+: \w*Warning: ")
TERMINALS = ((80, 24), (200, 50))
LATER = (("hang", "backward", 350),)  # so that there is time for pictures before it
TOP = 1000  # pixels of the first run's page that the docs show


def main() -> None:
    """Make the runs and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter with torch")
    parser.add_argument("--only", help="a story, such as note-a-backward, or watch")
    parser.add_argument(
        "--runs", type=Path, help="keep the runs here; those that are, are not made"
    )
    options = parser.parse_args()
    python = Path(options.python)
    PAGES.mkdir(parents=True, exist_ok=True)
    RUNS.mkdir(exist_ok=True)
    chosen = [each for each in (FIRST, *STORIES) if options.only in (None, each.name)]
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        place = options.runs or Path(made)
        browser = start_browser(playwright)
        for story in chosen:
            folder = place / story.name
            if not folder.exists():
                carry_out(story, folder, python)
            picture_report(browser, story, folder)
        if options.only in (None, "watch"):
            picture_watch(place / "watch", python)


def picture_report(browser: Browser, story: Story, folder: Path) -> None:
    """Draw the page of a run as a browser shows it, and what the first run printed."""
    page = PAGES / f"{story.name}.html"
    subprocess.run(
        [sys.executable, "-m", "rocsteady", "report", "--force", "-o", str(page)],
        cwd=folder, check=True,
    )  # fmt: skip
    draw(browser, page.as_uri(), PAGES if story is FIRST else RUNS, story.name)
    if story is FIRST:
        top = browser.new_page(viewport={"width": 1280, "height": TOP}, color_scheme="light")
        top.goto(page.as_uri())
        top.screenshot(path=PICTURES / "report.png")
        picture_first_run(folder)


def picture_watch(folder: Path, python: Path) -> None:
    """Draw the full screen: healthy, in an incident, finished."""
    story = replace(STORIES[0], small=("--episodes", "500", *STORIES[0].small[2:]), faults=LATER)
    variables = prepare(story, folder, python)
    run = rocsteady(folder, variables, "run", "--yes", "--name", story.name)
    until_step(story.name, folder, variables, 20)
    for moment in ("healthy", "incident", "finished"):
        if moment == "incident":
            until_incident(folder)
            run.send_signal(signal.SIGSTOP)  # it would be over before all pictures are taken
        if moment == "finished":
            run.send_signal(signal.SIGCONT)
            run.wait()
        for columns, lines in TERMINALS:
            picture_terminal(folder, f"watch-{moment}-{columns}x{lines}", columns, lines)


def until_incident(folder: Path) -> None:
    """Wait until the journal has an incident."""
    with closing(sqlite3.connect(folder / ".rocsteady" / "journal.db")) as journal:
        while not journal.execute("SELECT count(*) FROM incidents").fetchone()[0]:
            time.sleep(0.02)


def picture_terminal(folder: Path, name: str, columns: int, lines: int) -> None:
    """Draw what ``rocsteady watch`` shows, as tmux has it."""
    tmux = ("tmux", "-L", "rocsteady-pictures")
    command = f"{sys.executable} -m rocsteady watch"
    size = ("-x", str(columns), "-y", str(lines))
    subprocess.run([*tmux, "new-session", "-d", *size, "-c", str(folder), command], check=True)
    end, seen = time.monotonic() + 60, ""
    while "q quit" not in seen and time.monotonic() < end:
        time.sleep(1.0)
        captured = [*tmux, "capture-pane", "-e", "-p"]
        seen = subprocess.run(captured, check=True, capture_output=True, text=True).stdout
    subprocess.run([*tmux, "kill-server"], check=False)
    console = Console(record=True, width=columns, file=io.StringIO(), legacy_windows=False)
    console.print(Text.from_ansi(seen))
    console.save_svg(str(RUNS / f"{name}.svg"), title="rocsteady watch")
    print(f"{name} is drawn")


def picture_first_run(folder: Path) -> None:
    """Draw what the run printed: its log, with rocsteady's lines where they came."""
    said = said_by(folder).read_text(errors="replace")
    console = Console(record=True, width=100, file=io.StringIO(), legacy_windows=False)
    console.print(Text("$ rocsteady run", style="bold"))
    for line in folded(said.splitlines()):
        console.print(Text(line, style=style(line)))
    console.save_svg(str(PICTURES / "first-run.svg"), title="examples/first_run")


def folded(lines: list[str]) -> Iterator[str]:
    """Yield the lines, each traceback as its first line and its last; no warnings of Python's."""
    inside = False
    for number, line in enumerate(lines):
        if WARNS.match(line) or (number and WARNS.match(lines[number - 1])):
            continue  # it names a folder of this machine, and the line below is its source
        if line.startswith("Traceback "):
            inside = True
            yield "Traceback (most recent call last): ..."
        elif not inside:
            yield line
        elif not line.startswith(" "):
            inside = False
            yield line


def style(line: str) -> str:
    """Choose a colour: red for a hang, green for the end, cyan for what else rocsteady says."""
    if not line.startswith(PREFIX):
        return "dim"
    said = line.removeprefix(PREFIX).lower()
    if said.startswith("hung"):
        return "bold red"
    return "bold green" if said.startswith("done") else "cyan"


if __name__ == "__main__":
    main()
