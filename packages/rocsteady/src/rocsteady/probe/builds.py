"""Other builds of torch: an environment for each, outside the project, kept for next time."""

from __future__ import annotations

import os
import re
import shutil
from datetime import timedelta
from pathlib import Path

from rocsteady.errors import RocsteadyError
from rocsteady.store.user_folders import state_folder
from rocsteady.system.bounded_call import AnswerKind, ask

WITHIN = timedelta(hours=1)  # for the download, too
LEAST_FREE = 20 << 30  # bytes; a build for a GPU and its libraries take up to this
INDEX = "https://download.pytorch.org/whl"
_BUILD = re.compile(r"torch==[0-9]+(?:\.[0-9a-z]+)*(?:\+(?P<tag>cpu|cu\d+|rocm\d+(?:\.\d+)*))?")
LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "VIRTUAL_ENV")


def is_build(text: str) -> bool:
    return _BUILD.fullmatch(text) is not None


def environment_of(build: str) -> Path:
    """Return where the environment of a build is, or would be."""
    return state_folder() / "builds" / build.replace("==", "-")


def interpreter_of(build: str) -> str:
    """Return the interpreter of a build; "" if it has not been made."""
    folder = environment_of(build)
    path = folder / "bin" / "python"
    return str(path) if (folder / "complete").exists() and path.exists() else ""


def make_environment(build: str, python: str) -> str:
    """Make the environment of a build, and return its interpreter.

    It has the Python of the script's own environment, torch, and what torch asks for. A build with
    a tag comes from pytorch.org's index for that tag, any other from where pip looks.
    """
    folder, found = environment_of(build), _BUILD.fullmatch(build)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if shutil.disk_usage(folder.parent).free < LEAST_FREE:
        raise RocsteadyError(f"{build}: less than {LEAST_FREE >> 30} GiB are free at {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    index = ["--index-url", f"{INDEX}/{found['tag']}"] if found and found["tag"] else []
    inside = str(folder / "bin" / "python")
    uv = shutil.which("uv")
    if uv:
        steps = [
            [uv, "venv", "--python", python, str(folder)],
            [uv, "pip", "install", "--python", inside, *index, build],
        ]
    else:
        steps = [
            [python, "-m", "venv", str(folder)],
            [inside, "-m", "pip", "install", "--quiet", *index, build],
        ]
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    for step in steps:
        answer = ask(step, within=WITHIN, environment=environment, complaints=True)
        if answer.outcome is not AnswerKind.ANSWERED or answer.exit_code:
            shutil.rmtree(folder, ignore_errors=True)
            lines = answer.text.strip().splitlines()
            raise RocsteadyError(f"{build}: {lines[-1] if lines else answer.outcome.value}")
    (folder / "complete").touch()
    return inside
