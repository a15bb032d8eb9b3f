"""The eeg job reads BrainVision, EDF and EEGLAB files, and cuts from them what was put in."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "eeg"
MNE_PYTHON = "ROCSTEADY_TEST_MNE_PYTHON"
COMPARE = """
import numpy as np
read, made = (np.load(f"{name}/signals.npy").astype(float) for name in ("read", "made"))
assert read.shape == made.shape, (read.shape, made.shape)
assert np.abs(read - made).max() < 0.2, np.abs(read - made).max()  # microvolts
read, made = (dict(np.load(f"{name}/labels.npz")) for name in ("read", "made"))
assert read.keys() == made.keys()
for name in made:
    a, b = read[name].astype(float), made[name].astype(float)
    assert np.allclose(a, b, atol=1e-3, equal_nan=True), name
"""


@pytest.fixture
def mne_python(tmp_path: Path, torch_python: str) -> str:
    """Give an interpreter with torch and mne: one that is named, or one that is made here."""
    if named := os.environ.get(MNE_PYTHON):
        return named
    venv = tmp_path / "venv"
    subprocess.run([torch_python, "-m", "venv", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    theirs, ours = (
        subprocess.run([each, "-c", find], check=True, capture_output=True, text=True).stdout
        for each in (torch_python, python)
    )
    Path(ours.strip(), "torch.pth").write_text(theirs)
    subprocess.run([python, "-m", "pip", "install", "-qq", "mne>=1.8"], check=True)
    return python


@pytest.mark.slow
def test_what_is_read_from_each_format_is_what_was_recorded(
    mne_python: str, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "eeg"))
    sizes = ("--subjects", "6", "--channels", "16")

    def say(*words: str) -> None:
        ended = subprocess.run(
            [mne_python, *words], cwd=folder, check=False, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    say("make_data.py", *sizes, "--bids", "bids")
    formats = {path.suffix for path in (folder / "bids").rglob("*_eeg.*")}
    assert formats == {".vhdr", ".eeg", ".vmrk", ".edf", ".set", ".json"}
    say("prepare.py", "bids", "--output", "read")
    say("make_data.py", *sizes, "--output", "made")
    say("-c", COMPARE)
