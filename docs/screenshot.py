"""Take every picture of the docs anew, from real runs: ``nox -s screenshot``.

first-run.svg and first-run.cast are a terminal recording of the README's script, complete and
unedited; doctor.svg is the doctor on a recorded machine. The pages of the runs are drawn at each
width and in each scheme, the full screen in two sizes. It needs tmux, and Chromium for the pages.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import os
import pty
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from contextlib import closing
from copy import copy
from dataclasses import replace
from pathlib import Path

from rich.color_triplet import ColorTriplet
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text
from story_runs import EXAMPLES, STORIES, carry_out, prepare, rocsteady, until_step

HERE = Path(__file__).parent
PICTURES, PAGES = HERE / "pictures", HERE / "_build" / "pages"
RUNS = PICTURES / "runs"
FIRST, WATCH, DOCTOR = "first-run", "watch", "doctor"
RECORDED = "rx5700xt-override"  # as in field note E
COMMAND = ("rocsteady", "run", "--", "python", "train.py")
COLUMNS, LINES, SECONDS = 108, 14, 30.0  # of the recording, at most
TERMINALS = ((80, 24), (200, 50))
LATER = (("hang", "backward", 350),)  # so that there is time for pictures before it
THEME = copy(SVG_EXPORT_THEME)
THEME.background_color = ColorTriplet(18, 18, 18)  # that of watch: tmux leaves out blanks at an end
TOP = 1000  # pixels of the first run's page that the docs show


def main() -> None:
    """Make the runs and take the pictures."""
    names = (FIRST, DOCTOR, WATCH, *(story.name for story in STORIES))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter with torch")
    parser.add_argument("--only", action="append", choices=names, help="may be repeated")
    parser.add_argument("--without-pages", action="store_true", help="draw nothing in a browser")
    options = parser.parse_args()
    python, chosen = Path(options.python), options.only or names
    PAGES.mkdir(parents=True, exist_ok=True)
    RUNS.mkdir(exist_ok=True)
    made: dict[str, Path] = {}
    with tempfile.TemporaryDirectory() as place:
        if FIRST in chosen:
            made[FIRST] = record_first_run(Path(place) / FIRST, python)
        if DOCTOR in chosen:
            picture_doctor()
        for story in (each for each in STORIES if each.name in chosen):
            made[story.name] = Path(place) / story.name
            carry_out(story, made[story.name], python)
        if not options.without_pages:
            picture_reports(made)
        if WATCH in chosen:
            picture_watch(Path(place) / WATCH, python)


def record_first_run(folder: Path, python: Path) -> Path:
    """Run the README's script on a terminal, and keep every byte with its time."""
    folder.mkdir(parents=True)
    shutil.copy(EXAMPLES / "first_run" / "train.py", folder)
    path = (
        f"{python.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    home = folder.with_name("home")  # it remembers no earlier run of the script
    home.mkdir()
    variables = {"PATH": path, "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    began = time.monotonic()
    seen, code = printed(COMMAND, folder, variables, COLUMNS)
    shown = "".join(text for _, text in seen).replace("\r\n", "\n")
    lines, seconds = 1 + shown.count("\n"), time.monotonic() - began
    print(f"$ {' '.join(COMMAND)}\n{shown}{FIRST}: code {code}, {lines} lines, {seconds:.1f} s")
    if code:
        raise SystemExit(f"not taken: it ended with {code}")
    if lines > LINES or seconds > SECONDS:  # the run itself can be drawn
        print(f"the recording is not taken: at most {LINES} lines and {SECONDS:.0f} s")
        return folder
    head = {"version": 2, "width": COLUMNS, "height": LINES, "title": " ".join(COMMAND)}
    events = [head, *([round(at - began, 3), "o", text] for at, text in seen)]
    cast = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in events)
    (PICTURES / f"{FIRST}.cast").write_text(cast, encoding="utf-8")
    save(FIRST, COMMAND, shown, COLUMNS, title=f"{seconds:.0f} s")
    return folder


def picture_doctor() -> None:
    """Draw what the doctor says of a recorded machine."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {"PATH": path, "HOME": "/nonexistent", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    machine = HERE.parent / "tests" / "machines" / f"{RECORDED}.json"
    seen, _ = printed(
        ("rocsteady", "doctor", "--root", machine.name), machine.parent, variables, 92
    )
    shown = "".join(text for _, text in seen)
    title = f"replayed from a recording: {machine.name}"
    save(DOCTOR, ("rocsteady", "doctor"), shown.replace("\r\n", "\n"), COLUMNS, title=title)


def printed(
    command: Sequence[str], folder: Path, variables: dict[str, str], columns: int
) -> tuple[list[tuple[float, str]], int]:
    """Return what a command prints on a terminal, with the time of each part, and its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, variables)  # noqa: S606 - as a shell would
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES + 2, columns, 0, 0))
    seen = list[tuple[float, str]]()
    while chunk := read(terminal):
        seen.append((time.monotonic(), chunk.decode(errors="replace")))
    return seen, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def save(name: str, command: Sequence[str], shown: str, columns: int, *, title: str) -> None:
    console = Console(record=True, width=columns, file=io.StringIO(), legacy_windows=False)
    console.print(Text(f"$ {' '.join(command)}", style="bold"))
    console.print(Text.from_ansi(shown.rstrip("\n")))
    console.save_svg(str(PICTURES / f"{name}.svg"), title=title)


def read(terminal: int) -> bytes:
    """Return what was printed; nothing at the end, which a terminal tells by an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def picture_reports(made: dict[str, Path]) -> None:
    """Draw the page of each run as a browser shows it."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - the recording needs none
    from screenshot_page import draw, start_browser  # noqa: PLC0415

    with sync_playwright() as playwright:
        browser = start_browser(playwright)
        for name, folder in made.items():
            page = PAGES / f"{name}.html"
            subprocess.run(
                [sys.executable, "-m", "rocsteady", "report", "--force", "-o", str(page)],
                cwd=folder, check=True,
            )  # fmt: skip
            draw(browser, page.as_uri(), PAGES if name == FIRST else RUNS, name)
            if name == FIRST:
                size = {"width": 1280, "height": TOP}
                top = browser.new_page(viewport=size, color_scheme="light")
                top.goto(page.as_uri())
                top.screenshot(path=PICTURES / "report.png")
                top.locator(".beside").first.screenshot(path=PICTURES / "wait.png")
                shutil.copyfile(page, PICTURES / "report.html")


def picture_watch(folder: Path, python: Path) -> None:
    """Draw the full screen: healthy, hung, finished."""
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
    while STORIES[0].name not in seen and time.monotonic() < end:
        time.sleep(2.0)
        captured = [*tmux, "capture-pane", "-e", "-p"]
        seen = subprocess.run(captured, check=True, capture_output=True, text=True).stdout
    subprocess.run([*tmux, "kill-server"], check=False)
    console = Console(record=True, width=columns, file=io.StringIO(), legacy_windows=False)
    console.print(Text.from_ansi(seen))
    console.save_svg(str(RUNS / f"{name}.svg"), title="rocsteady watch", theme=THEME)
    print(f"{name} is drawn")


if __name__ == "__main__":
    main()
