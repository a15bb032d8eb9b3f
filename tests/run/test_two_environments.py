"""rocsteady without torch in one environment watches torch without rocsteady in another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from side_by_side import SideBySide

pytestmark = pytest.mark.slow
OURS = ("rocsteady", "click", "msgspec", "platformdirs", "psutil", "rich", "tomli")
NAMES = (*OURS, "_rocsteady_inside", "sitecustomize")
FINDS = "import importlib.util, json, sys; print(json.dumps([n for n in sys.argv[1:] if "
FINDS += "importlib.util.find_spec(n)]))"
TRAIN = f"""
    import importlib.util, json, pkgutil, sys
    import torch
    net = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(7):
        net(torch.ones(2)).backward(); optimizer.step()
    def importable(name):
        try: __import__(name)
        except ImportError: return False
        return True
    print(json.dumps({{
        "importable": [name for name in {NAMES} if importable(name)],
        "loaded": sorted({{name.partition(".")[0] for name in sys.modules if "rocsteady" in name}}),
        "listed": [found.name for found in pkgutil.iter_modules() if "rocsteady" in found.name],
        "on the path": [entry for entry in sys.path if "rocsteady" in entry],
    }}))
"""


def finds(python: str, *names: str) -> list[str]:
    """Return which of these an environment has, asked where nothing else is on the path."""
    told = subprocess.run(
        [python, "-I", "-c", FINDS, *names], check=True, capture_output=True, text=True
    )
    return list(json.loads(told.stdout))


@pytest.mark.ci
def test_nothing_of_ours_is_seen_where_the_training_is(
    tmp_path: Path, clean_python: str, torch_python: str
) -> None:
    assert finds(clean_python, "rocsteady", "torch") == ["rocsteady"]
    assert finds(torch_python, "torch", *OURS) == ["torch"]
    runs = SideBySide(tmp_path, (str(Path(clean_python).with_name("rocsteady")),))

    ended = runs.watched(torch_python, runs.script(TRAIN))

    assert (ended.code, ended.err) == (0, b"")
    assert json.loads(ended.out) == {
        "importable": ["_rocsteady_inside"],
        "loaded": ["_rocsteady_inside"],
        "listed": [],
        "on the path": [],
    }, runs.said
    line = runs.story()
    assert (line["step"], line["run"]["outcome"]) == (7, "done")
