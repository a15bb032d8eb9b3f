"""The five field notes, replayed from start to end by real commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STORIES = Path(__file__).parents[2] / "examples" / "stories"


@pytest.mark.slow
@pytest.mark.parametrize("note", "abcde")
def test_every_step_of_a_story_does_what_it_must(note: str, torch_python: str) -> None:
    words = (sys.executable, str(STORIES / f"{note}.py"), "--small", "--python", torch_python)
    ended = subprocess.run(words, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]


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
        "assert telling.missing == []\n"
        "telling.carry_out(replace(STORY.before[0], code=0, lines=('all is well',)))\n"
        "assert telling.missing == ['all is well', 'exit code 0; it was 1'], telling.missing\n"
    )
    subprocess.run([sys.executable, "-c", telling], check=True)
