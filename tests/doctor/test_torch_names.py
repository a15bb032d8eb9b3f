"""tools/torch_names.py: what differs between the table and a release is found."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names() -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_names", ROOT / "tools/torch_names.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_names"] = module
    spec.loader.exec_module(module)
    return module


SOURCE = """
import os
from .api import Imported as Other
if os.name == "posix":
    CONSTANT: int = 1

class Agent:
    field: str
    def __init__(self, spec, port=0, *, grown):
        self.spec = spec
    def run(self, role="a", **more): ...

class Handler(ABC):
    @abstractmethod
    def get(self): ...
    @property
    @abstractmethod
    def name(self): ...
    def close(self): ...

@dataclass
class Place:
    host: str
    port: int = 0

def start(agent, timeout): os.environ["TORCH_X"]
"""


@pytest.mark.parametrize(
    ("name", "is_right"),
    [
        ("Other", True),
        ("Imported", False),
        ("CONSTANT", True),
        ("Agent.field", True),
        ("Agent.spec", True),
        ("Agent.gone", False),
        ("Agent(spec, *, grown)", True),
        ("Agent(spec)", False),  # requires one more, as when LocalElasticAgent grew
        ("Agent.run(role)", True),
        ("Agent.run(rank)", False),
        ("Agent.run(*, anything)", True),
        ("start(agent, timeout)", True),
        ("start(agent)", False),
        ("start(timeout, agent)", False),
        ("Place(host)", True),
        ("Place(host, *, port)", True),
        ("Place(port)", False),
        ("Handler!get,name", True),
        ("Handler!get,name,close", True),
        ("Handler!get", False),  # a new abstract method would stop our subclass
        ("Handler!get,name,gone", False),
        ('"TORCH_X"', True),
        ('"TORCH_Y"', False),
    ],
)
def test_names_signatures_and_texts(names: ModuleType, name: str, is_right: bool) -> None:  # noqa: FBT001
    assert (names.problem(name, SOURCE) == "") is is_right


def test_both_directions_of_a_difference_are_reported(names: ModuleType, tmp_path: Path) -> None:
    table = names.uses(
        """
        [[use]]
        what = "new"
        by = "x"
        torch = ">=2.15"
        without = "nothing"
        in = { "torch/a*.py" = ["CONSTANT", "gone"] }
        [[use]]
        what = "early"
        by = "x"
        torch = ">=2.16"
        in = { "torch/agent.py" = ["start"] }
        [[use]]
        what = "moved"
        by = "x"
        in = { "torch/elsewhere.py" = ["start"] }
        """
    )
    wheel = tmp_path / "torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch/agent.py", SOURCE)

    (release,) = names.releases([str(wheel)])
    result = names.compare(table, release)

    assert [line.split(": ")[1] for line in names.unexpected(table, [result])] == [
        "new",
        "early",
        "moved",
    ]
    assert "| new | no |" in names.page(table, [result], "2026-11-18")


def test_every_module_that_is_hooked_is_in_the_table(names: ModuleType) -> None:
    inside = ROOT / "packages/rocsteady_train/src/rocsteady_train/inside/sitecustomize.py"
    hooked = set(re.findall(r'"(torch\.[\w.]+)"', inside.read_text()))
    table = names.uses(names.TABLE.read_text())

    files = {file for use in table for file in use.names}

    missing = {
        name
        for name in hooked
        if not {f"{name.replace('.', '/')}{end}" for end in (".py", "/__init__.py")} & files
    }
    assert missing == set()


@pytest.mark.slow
@pytest.mark.ci
def test_the_installed_torch_has_what_is_relied_on(names: ModuleType, torch_python: str) -> None:
    asks = "import json, sysconfig; print(json.dumps(sysconfig.get_path('purelib')))"
    told = subprocess.run([torch_python, "-c", asks], check=True, capture_output=True, text=True)
    said: list[str] = []

    code = names.main([json.loads(told.stdout)], say=said.append)

    assert code == 0, said
