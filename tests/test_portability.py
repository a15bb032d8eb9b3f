"""Other systems and versions: native Windows, and the Python 3.9 of a training process.

What is supported on Windows imports and works there; the rest refuses in one line.

Windows is simulated: without the modules that only POSIX has, and with its name as the platform.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

MACHINE = Path(__file__).parent / "machines" / "rx9070xt-windows.json"
POSIX_ONLY = ("fcntl", "grp", "pty", "pwd", "resource", "termios")
WINDOWS = """
import ctypes, json, multiprocessing, pathlib, platform, shutil, subprocess, sys, tempfile, types
import asyncio, ctypes.util, importlib.metadata, logging.handlers, sysconfig, urllib.request, uuid
import concurrent.futures.thread, webbrowser
import click, msgspec, platformdirs  # as they are on this system
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
winreg = sys.modules["winreg"] = types.ModuleType("winreg")
winreg.HKEY_LOCAL_MACHINE, winreg.OpenKey = 0, lambda *_: open("/nonesuch")
sysconfig.get_config_vars()
sys.platform = "win32"
sys.argv = ["rocsteady", *sys.argv[2:]]
from rocsteady.cli.main import main
main()
"""


def on_windows(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WINDOWS, json.dumps(POSIX_ONLY), *map(str, words)],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--help",), "doctor"),
        (("doctor", "--root", MACHINE), "rx9070xt-windows-hang"),
        (("machine", "--root", MACHINE), "Windows 11"),
        (("env", "--root", MACHINE), "HSA_ENABLE_SDMA"),
        (("wheels", "--root", MACHINE), "gfx1201"),
        (("explain", "HIP out of memory. Tried to allocate 1.50 GiB"), "memory"),
        (("status", "--help"), "Usage"),
        (("report", "--help"), "Usage"),
    ],
)
def test_what_reads_only_works_on_windows(words: tuple[str | Path, ...], expected: str) -> None:
    done = on_windows(*words)

    assert done.returncode in (0, 1), done.stderr  # 1: the doctor has found something
    assert "bug" not in done.stderr
    assert expected in done.stdout


@pytest.mark.parametrize("name", ["run", "probe", "drill", "init", "stop"])
def test_what_starts_or_watches_processes_needs_linux(name: str) -> None:
    done = on_windows(name)

    assert done.returncode == 2
    assert done.stderr == f"error: rocsteady {name} needs Linux or WSL2.\n"


COMMAND = ("--", "python", "train.py")


@pytest.mark.parametrize("words", [("plan", *COMMAND), ("plan", "--no-trials"), ("watch",)])
def test_trials_and_runs_need_linux_and_it_says_what_does_not(words: tuple[str, ...]) -> None:
    done = on_windows(*words)

    assert done.returncode == 2
    assert "needs Linux or WSL2" in done.stderr
    assert {"plan": "--root", "watch": "--pid"}[words[0]] in done.stderr


def test_the_doctors_fix_can_be_typed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned = on_windows("plan", "--root", MACHINE, "--json", *COMMAND)
    exported = on_windows("plan", "--root", MACHINE, "--export", "wsl2", "--yes", *COMMAND)

    assert planned.returncode == 0, planned.stderr
    ids = [option["id"] for option in json.loads(planned.stdout)["options"]]
    assert "wsl2" in ids
    assert not any(option.get("pace") for option in json.loads(planned.stdout)["options"])
    assert exported.returncode == 0, exported.stderr
    (guide,) = tmp_path.glob("*.md")
    assert "wsl" in guide.read_text(encoding="utf-8").lower()


def test_a_process_can_be_looked_into_there() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        done = on_windows("watch", "--pid", str(child.pid), "--json")
        child.kill()

    assert done.returncode in (0, 1), done.stderr
    assert "internal error" not in done.stderr
    assert json.loads(done.stdout)


PACKAGES = Path(__file__).parents[1] / "packages"
IN_TRAINING = PACKAGES / "rocsteady_train" / "src"
SINCE_310 = {"zip": {"strict"}, "dataclass": {"slots", "kw_only"}}
NAMES_310 = {"pairwise", "orig_argv", "bit_count", "TypeAlias", "ParamSpec", "NoneType"}


def test_what_enters_a_training_process_is_python_3_9() -> None:
    found = []
    paths = list(IN_TRAINING.rglob("*.py"))
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))):
            used: set[str | None] = set()
            if isinstance(node, ast.Call):
                newer = SINCE_310.get(ast.unparse(node.func), set())
                used = {word.arg for word in node.keywords if word.arg in newer}
            elif isinstance(node, (ast.Attribute, ast.alias)):
                used = {getattr(node, "attr", getattr(node, "name", ""))} & NAMES_310
            elif isinstance(node, ast.Match):
                used = {"match"}
            found += [f"{path.name}: {name}" for name in used]

    assert found == []


def test_pip_takes_no_folder_of_the_checkout_for_a_version() -> None:
    """It keeps the wheel of NAME-VERSION, and installs it again after the files have changed."""
    names = [project.parent.name for project in PACKAGES.glob("*/pyproject.toml")]

    assert len(names) == 3
    assert not [name for name in names if "-" in name]
