"""What is to be done elsewhere, as a value: all that a file for another place is made of."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

import msgspec
from rocsteady_train.untrusted_file import read_regular

from rocsteady.doctor.knowledge.reader import DATA, decoded
from rocsteady.doctor.knowledge.resume_arguments import resume_argument
from rocsteady.model import Value
from rocsteady.run.job.stages import PYTHON
from rocsteady.typed_values import convert

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
LONGEST_NAME = 40  # characters of a name; SkyPilot, Slurm and Kubernetes all take it


class Export(Value, frozen=True, kw_only=True):
    """A job, and the option of the plan that is to be taken with it."""

    name: str  # of the project
    command: tuple[str, ...]
    written: str  # the day: 2026-11-15
    option: str = ""  # of the plan, in words
    folder: str = ""  # the project's own, here
    checkpoints: tuple[str, ...] = ()  # patterns, from the project's folder
    resume: tuple[str, ...] = ()  # arguments with which the command goes on
    outputs: tuple[str, ...] = ()  # patterns of the files that a job that is done has written
    requirements: str = ""  # a file for pip, from the project's folder; "": there is none
    gfx: str = ""  # of the GPU that it is for: gfx1100
    gpu: str = ""  # its name
    gpus: int = 1
    torch: str = ""  # as it is installed: 2.8.0+rocm6.4, or 2.8.0; "": not known
    rocm: str = ""  # that this torch is built for: 6.4
    deadline: str = ""  # in words
    due: float | None = None  # seconds from the day it is written to the deadline
    infra: str = ""  # where SkyPilot takes the GPU from: runpod, vast, kubernetes
    accelerator: str = ""  # its name there: RTX4090, MI300X
    max_hourly_cost: float | None = None  # dollars
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    unset: tuple[str, ...] = ()  # variables that must not be set
    setup: tuple[float, float] | None = None  # minutes of work by hand

    @property
    def resumes(self) -> str:
        """By what an interrupted run goes on; "" if nothing says that it does."""
        return ", ".join(self.checkpoints) or resume_argument(self.command)


def slug(name: str) -> str:
    """Return a name that each of these systems takes."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "-".join(words)[:LONGEST_NAME].strip("-") or "training"


def torch_release(torch: str) -> str:
    """Return a version of torch without what it was built for: 2.8.0 of 2.8.0+rocm6.4."""
    return torch.partition("+")[0]


def command_elsewhere(command: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out where the program lies here: /home/me/venv/bin/python is python3 elsewhere."""
    program, *arguments = command
    if _DRIVE.match(program) or program.startswith("\\\\"):
        program = PureWindowsPath(program).name
    elif program.startswith("/"):
        program = PurePosixPath(program).name
    program = re.sub(r"\.exe$", "", program, flags=re.IGNORECASE)
    is_python = re.fullmatch(r"py|python[0-9.]*", program)
    return ("python3" if is_python else program, *arguments)


def run_command(export: Export) -> str:
    """Return the command that does the job, for a person to start, the second time too."""
    resumes = ("--resume", "auto") if export.checkpoints else ()
    command = command_elsewhere(export.command)
    return shlex.join(("rocsteady", "run", "--yes", *resumes, "--", *command))


def outside(command: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """Return the words of a command that name files outside the folder, which stay here."""
    root = folder.resolve()
    found = []
    for word in command[1:]:
        path = Path(word.rpartition("=")[2])
        away = path.is_absolute() or ".." in path.parts
        if away and not (root / path).resolve().is_relative_to(root) and (root / path).exists():
            found.append(word)
    return tuple(found)


def job_command(export: Export) -> str:
    """Return the command that does the job, for a scheduler, which starts it again and again.

    On several hosts torchrun starts the watchers itself.
    """
    command = command_elsewhere(export.command)
    if several_hosts(command):
        return shlex.join(without_meeting(command))
    return run_command(export)


def folders(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders below the project that files of these patterns lie in.

    "." for files in the project's own. What lies outside of it is left out.
    """
    found = set()
    for pattern in patterns:
        parts = PurePosixPath(pattern.replace("\\", "/")).parts[:-1]
        fixed = []
        for part in parts:
            if set("*?[") & set(part):
                break
            fixed.append(part)
        if not {"..", "/"} & set(fixed) and not _DRIVE.match(pattern):
            found.add("/".join(fixed) or ".")
    return tuple(
        sorted(
            folder for folder in found if not any(folder.startswith(f"{other}/") for other in found)
        )
    )


TORCHRUN = re.compile(r"(.*[/\\])?torchrun(\.exe)?")
MODULE = ("-m", "torch.distributed.run")
FLAGS = frozenset({"standalone", "no_python", "m", "module", "run_path"})  # without a value
MEETING = frozenset(
    {"rdzv_backend", "rdzv_endpoint", "rdzv_id", "master_addr", "master_port", "node_rank"}
    | {"standalone", "local_addr"}
)


class HostCount(NamedTuple):
    least: int
    most: int


def torchrun_hosts(command: tuple[str, ...]) -> HostCount | None:
    start = _start(command)
    if start is None:
        return None
    least, _, most = _last(command[start:], "nnodes").partition(":")
    numbers = (least, most or least)
    return HostCount(*map(int, numbers if all(map(str.isdecimal, numbers)) else (1, 1)))


def ranks_per_host(command: tuple[str, ...]) -> int | None:
    """Return how many ranks a torchrun starts on each host, if it says so by a number."""
    value = ranks_option(command)
    return int(value) if value.isdecimal() else None


def ranks_option(command: tuple[str, ...]) -> str:
    """Return how a torchrun is told the ranks of a host: "8", "gpu" or "auto"; "" if it is not."""
    start = _start(command)
    return _last(command[start:], "nproc_per_node") if start is not None else ""


def several_hosts(command: tuple[str, ...]) -> bool:
    hosts = torchrun_hosts(command)
    return hosts is not None and hosts.most > 1


def without_meeting(command: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out what a torchrun on several hosts says of where they meet."""
    start = _start(command)
    if start is None or not several_hosts(command):
        return command
    left_out = {
        start + place
        for name, _, places in _options(command[start:])
        if name in MEETING
        for place in places
    }
    return tuple(word for place, word in enumerate(command) if place not in left_out)


def _start(command: tuple[str, ...]) -> int | None:
    if command and TORCHRUN.fullmatch(command[0]):
        return 1
    if command and PYTHON.fullmatch(command[0]) and command[1:3] == MODULE:
        return 3
    return None


def _last(words: tuple[str, ...], wanted: str) -> str:
    """Return the value of an option, the last if it is given twice, as argparse does."""
    return ([value for name, value, _ in _options(words) if name == wanted] or [""])[-1]


def _options(words: tuple[str, ...]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return torchrun's options up to the script: name, value, and places of both."""
    found = []
    place = 0
    while place < len(words) and words[place].startswith("-"):
        name, given, value = words[place].lstrip("-").partition("=")
        name = name.replace("-", "_")
        places: tuple[int, ...] = (place,)
        if not given and name not in FLAGS:
            value = "".join(words[place + 1 : place + 2])
            places = (place, place + 1)
        found.append((name, value, places))
        place = places[-1] + 1
    return found


class Image(Value, frozen=True, kw_only=True):
    rocm: str
    torch: str
    gpus: frozenset[str]
    source: str

    @property
    def name(self) -> str:
        return f"rocm/pytorch:rocm{self.rocm}_ubuntu24.04_py3.12_pytorch_release_{self.torch}"


class Places(Value, frozen=True, kw_only=True):
    """What is known of places elsewhere: exports.toml."""

    as_of: str
    wheels: str
    wheels_source: str
    wheels_for: frozenset[str]
    image: tuple[Image, ...]
    accelerators: dict[str, str]
    wsl: dict[str, tuple[str, ...]]
    wsl_reports: dict[str, str]


@cache
def known_places() -> Places:
    return convert(decoded(DATA / "exports.toml"), Places)


def image_for(gfx: str, torch: str = "") -> Image | None:
    """Return the image for a GPU whose torch is the same release, or the next one after it.

    Without a known release, the newest. None: no image is known to have code for this GPU.
    """
    fitting = [image for image in known_places().image if not gfx or gfx in image.gpus]
    if not fitting:
        return None
    wanted = _minor(torch)
    if wanted is None:
        return fitting[-1]
    later = [image for image in fitting if (_minor(image.torch) or wanted) >= wanted]
    return later[0] if later else fitting[-1]


def _minor(torch: str) -> tuple[int, int] | None:
    parts = torch_release(torch).split(".")[:2]
    if len(parts) < 2 or not all(part.isdecimal() for part in parts):  # noqa: PLR2004 - 2.8
        return None
    return int(parts[0]), int(parts[1])


FILE = "rocsteady-requirements.txt"
SCRIPT_LIMIT = 4 * 1024 * 1024  # bytes
# A place brings its own torch, for its own GPU, and rocsteady is installed beside it.
LEFT_OUT = {"torch", "torchvision", "torchaudio", "triton", "rocsteady"}


def pins(folder: Path, site_packages: Sequence[str]) -> str:
    """Return the text of a requirements file for the Python files of a folder; "" for none."""
    wanted = set(_imported(folder)) - LEFT_OUT - set(sys.stdlib_module_names)
    wanted -= {path.stem for path in folder.iterdir()}  # the project's own
    found = {
        f"{each.name}=={each.version.partition('+')[0]}"
        for each in distributions(path=list(site_packages))
        if each.name.lower() not in LEFT_OUT and wanted & _provided(each)
    }
    return "".join(f"{line}\n" for line in sorted(found, key=str.lower))


def _imported(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(read_regular(path, SCRIPT_LIMIT))
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # of another Python, or not to be read: the others count
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (name.name.partition(".")[0] for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def _provided(distribution: Distribution) -> set[str]:
    files = distribution.files or ()
    return {file.parts[0].partition(".")[0] for file in files if file.suffix in (".py", ".so")}
