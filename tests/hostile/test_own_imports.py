"""No file of the folder that rocsteady is used in becomes a module of rocsteady's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from supervised import ROCSTEADY, Project, until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="runs are of POSIX")

# Names of what rocsteady imports: of its own, of its dependencies, and of the standard library.
NAMES = (
    "rocsteady", "rocsteady_train", "rocsteady_knowledge", "click", "msgspec", "rich", "textual",
    "jinja2", "platformdirs", "yaml", "queue", "logging", "types", "platform", "shlex", "sqlite3",
    "threading", "subprocess", "signal", "typing",
)  # fmt: skip
TAKEN = "raise SystemExit('taken for a module of rocsteady: ' + __file__)\n"
SCRIPT = "import os; print(os.getpid(), flush=True)\n"


@pytest.fixture
def crowded(project: Project) -> Project:
    """Return a project with a file of each name, and rocsteady as it is installed."""
    for name in NAMES:
        project.script(TAKEN, f"{name}.py")
    project.script(SCRIPT, "elsewhere/train.py")
    project.program = (str(Path(sys.executable).with_name("rocsteady")),)
    return project


def test_a_run_in_the_background_imports_nothing_of_the_folder(crowded: Project) -> None:
    started = crowded.run("--detach", "--", sys.executable, "elsewhere/train.py")
    until(lambda: crowded.line()["run"]["ended"])

    assert started.code == 0, started.err
    assert crowded.line()["run"]["outcome"] == "done"


def test_a_run_by_module_leaves_the_folder_off_its_path(crowded: Project) -> None:
    for name in ("rocsteady", "types", "typing"):  # Python itself imports these before us
        (crowded.folder / f"{name}.py").unlink()
    crowded.program = ROCSTEADY

    ended = crowded.run("--", sys.executable, "elsewhere/train.py")

    assert (ended.code, "taken for" in ended.err) == (0, False), ended.err


def test_a_folder_on_the_path_of_the_script_is_not_on_ours(project: Project) -> None:
    for name in ("click", "msgspec", "rich", "platformdirs", "queue", "shlex", "logging"):
        project.script(TAKEN, f"{name}.py")
    project.script(SCRIPT, "train.py")
    project.environment["PYTHONPATH"] = "."
    project.program = (str(Path(sys.executable).with_name("rocsteady")),)

    here = project.run("--", sys.executable, "-c", "import train")
    started = project.run("--detach", "--", sys.executable, "-c", "import train", name="other")

    assert (here.code, started.code) == (0, 0), here.err + started.err


def test_a_rehearsal_imports_nothing_of_a_folder_on_the_path(project: Project) -> None:
    for name in ("json", "ctypes", "typing", "errno"):
        project.script("open(__file__ + '.taken', 'w').close(); raise ImportError", f"{name}.py")
    project.environment["PYTHONPATH"] = str(project.folder)
    project.program = (str(Path(sys.executable).with_name("rocsteady")),)

    tried = project.say("init", "--seconds", "1", "--", "/bin/true")

    assert tried.code == 0, tried.err
    assert not list(project.folder.glob("*.taken"))
