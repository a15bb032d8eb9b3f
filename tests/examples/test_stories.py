"""The five field notes, replayed from start to end by real commands."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORIES = ROOT / "examples" / "stories"
PAGES = ROOT / "docs" / "stories"
DIGEST = re.compile(r"\nDigest of this page: `([0-9a-f]{64})`\n\Z")
END = re.compile(r"^The run ended with .+: (.*)\.$", re.MULTILINE)
GENERATED = "abcde"
IN_CI = "ac"  # both have a fault that stays


@pytest.mark.slow
@pytest.mark.parametrize(
    "note",
    [pytest.param(note, marks=[pytest.mark.ci] * (note in IN_CI)) for note in GENERATED],
)
def test_a_story_ends_as_its_page_says(note: str, torch_python: str, tmp_path: Path) -> None:
    page = tmp_path / f"{note}.md"
    words = (sys.executable, f"{note}.py", "--small", "--python", torch_python, "--page", page)
    ended = subprocess.run(words, capture_output=True, text=True, check=False, cwd=STORIES)

    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    kept = (PAGES / page.name).read_text(encoding="utf-8")
    assert END.findall(page.read_text(encoding="utf-8")) == END.findall(kept)


@pytest.mark.parametrize("note", GENERATED)
def test_a_page_is_as_it_was_generated(note: str) -> None:
    """Whoever edits one by hand has to run its story again: examples/stories/pages.py."""
    text = (PAGES / f"{note}.md").read_text(encoding="utf-8")
    digest = DIGEST.search(text)

    assert digest is not None
    assert digest[1] == hashlib.sha256(text[: digest.start()].encode()).hexdigest()
    assert END.search(text)


def test_a_story_that_misses_an_effect_fails(tmp_path: Path) -> None:
    """No torch is needed to see it: the first command says something else."""
    text = (STORIES / "e.py").read_text()
    telling = (
        f"import sys; sys.path.insert(0, {str(STORIES)!r})\n"
        + text.partition("if __name__")[0]
        + "from dataclasses import replace\n"
        "from story import Telling, read_options\n"
        "from pathlib import Path\n"
        f"telling = Telling(STORY, Path({str(tmp_path)!r}), read_options(['--small']))\n"
        "telling.carry_out(STORY.before[0])\n"
        "assert telling.missing == [], telling.missing\n"
        "telling.carry_out(replace(STORY.before[0], code=0, lines=('all is well',)))\n"
        "assert telling.missing == ['all is well', 'exit code 0; it was 1'], telling.missing\n"
    )
    subprocess.run([sys.executable, "-c", telling], check=True)
