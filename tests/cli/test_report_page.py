"""A real run, and its page: written to a file, bundled, and followed."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

if os.name == "nt":
    pytest.skip("runs are supervised on POSIX", allow_module_level=True)

if TYPE_CHECKING:
    from supervised import Project

SCRIPT = """
import time
for step in range(1, 41):
    print(f"step {step}/40 loss {1 / step:.3f} <b>bold</b>", flush=True)
    time.sleep(0.05)
raise SystemExit(%d)
"""


def test_a_run_and_its_page(project: Project) -> None:
    project.run("--max-attempts", "1", "--", sys.executable, project.script(SCRIPT % 0))
    folder = project.folder

    assert project.say("report", "-o", "page.html").code == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "Loss: " in page
    assert "Host memory: " in page
    assert "&lt;b&gt;bold" in page
    assert "<b>" not in page
    assert 'class="badge ok"' in page

    (folder / "page.html").unlink()
    project.environment["PATH"] = str(folder)  # where there is no browser
    opened = project.say("report", "--open")
    at = folder / ".rocsteady" / "runs" / project.name / "report.html"
    assert 'class="badge ok"' in at.read_text(encoding="utf-8")
    assert at.as_uri() in opened.err
    assert not list(folder.glob("*.html"))  # nothing that git would list

    assert project.say("report", "--bundle").code == 0
    with zipfile.ZipFile(folder / f"rocsteady-{project.name}.zip") as archive:
        assert archive.namelist() == ["report.html"]
    assert project.say("report", "--bundle").code == 0  # its own file may be renewed
    (folder / f"rocsteady-{project.name}.zip").write_text("my own notes")
    assert project.say("report", "--bundle").code == 2
    assert project.say("report", "-o", "story.md").code == 0
    assert (folder / "story.md").read_text().startswith(f"# {project.name}: ")
    assert project.say("report", "-o", "story.txt").code == 0
    assert (folder / "story.txt").read_text().startswith("done ")
    told = json.loads(project.say("report", "--json").out)
    assert told["progress"][-1]["gauges"]["loss"]["least"] == 0.025


def test_a_failed_run_says_what_to_do(project: Project) -> None:
    project.run("--max-attempts", "1", "--", sys.executable, project.script(SCRIPT % 3))

    assert project.say("report", "-o", "story.txt").code == 0
    text = (project.folder / "story.txt").read_text()

    assert text.startswith("failed ")
    assert "rocsteady run --resume never -- " in text  # it loads no checkpoint


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--open", "-o", "x.md"), "name it .html or .htm"),
        (("--json", "-o", "x.json"), "--json goes to stdout"),
        (("--bundle", "-o", "x.html"), "name it .zip"),
        (("-o", "x.pdf"), "name it .html or .htm or .md or .txt or .json"),
        (("-o", "taken.md"), "already exists; use --force to overwrite"),
        (("-o", "folder.txt", "--force"), "is a directory"),
    ],
)
def test_what_cannot_be_is_incorrect_usage(
    project: Project, words: tuple[str, ...], why: str
) -> None:
    taken = project.folder / "taken.md"
    taken.write_text("mine")
    (project.folder / "folder.txt").mkdir()
    said = project.say("report", *words)
    assert said.code == 2
    assert taken.read_text() == "mine"
    assert why in said.err
