"""Every verdict on recordings of real runs is what it was: hangs, look-alikes and ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hangs.verdicts.recordings import Recording, load, replay

FOLDER = Path(__file__).parents[1] / "recordings"
FILES = {path.name.partition(".")[0]: load(path) for path in sorted(FOLDER.glob("*.xz"))}
ALL = [recording for recordings in FILES.values() for recording in recordings]


@pytest.mark.parametrize("recording", ALL, ids=lambda recording: recording.name)
def test_a_recorded_run_is_judged_as_before(recording: Recording) -> None:
    assert replay(recording) == recording.answers


@pytest.mark.parametrize("recording", FILES["healthy"], ids=lambda recording: recording.name)
def test_no_healthy_run_is_hung(recording: Recording) -> None:
    assert "hung" not in {answer.condition for answer in recording.answers}
