"""Record the first run of the tutorial, and its report: ``nox -s screenshot``.

The picture shows a real run of ``examples/first_run``. Tracebacks of the script, which it prints
when a hung attempt is ended, are folded to one line; nothing else is changed. The report is drawn
by Chromium, if there is one; otherwise its picture stays as it is.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "first_run"
PICTURE = HERE / "pictures" / "first-run.svg"
REPORT = HERE / "pictures" / "report.png"
COLUMNS = 100
COMMAND = "rocsteady run"
PREFIX = "rocsteady: "


def main() -> None:
    """Run the example and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter with torch")
    python = Path(parser.parse_args().python)
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "first_run"
        shutil.copytree(EXAMPLE, project)
        ended = subprocess.run(
            [sys.executable, "-m", *COMMAND.split(), "--yes", "--name", "calm-otter"],
            cwd=project,
            env={**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        picture_report(project)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), legacy_windows=False)
    console.print(Text(f"$ {COMMAND}", style="bold"))
    for line in folded(ended.stdout.splitlines()):
        console.print(Text(line, style=style(line)))
    PICTURE.parent.mkdir(exist_ok=True)
    console.save_svg(str(PICTURE), title="examples/first_run")
    print(f"{PICTURE} is written")


def picture_report(project: Path) -> None:
    """Draw the page of the run as a browser shows it."""
    page = project / "report.html"
    subprocess.run(
        [sys.executable, "-m", "rocsteady", "report", "-o", str(page)], cwd=project, check=True
    )
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print(f"no Chromium was found: {REPORT} stays as it is")
        return
    size, flags = "--window-size=1000,1500", ("--headless=new", "--no-sandbox", "--hide-scrollbars")
    subprocess.run([browser, *flags, size, f"--screenshot={REPORT}", page.as_uri()], check=True)
    print(f"{REPORT} is written")


def folded(lines: list[str]) -> Iterator[str]:
    """Yield the lines, each traceback as its first line and its last."""
    inside = False
    for line in lines:
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
