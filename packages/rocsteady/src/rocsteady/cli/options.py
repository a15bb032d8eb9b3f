"""Options that several commands have: which machine is examined, and durations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import click

from rocsteady.errors import JournalError
from rocsteady.system.disk_root import DiskRoot
from rocsteady.system.root import Root

PLACES = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")

root_option = click.option(
    "--root",
    metavar="FILE-OR-DIR",
    type=click.Path(exists=True, path_type=Path),
    help="Examine a recorded machine, or a copy of its files, instead of this one.",
)
paths_yes_option = click.option(
    "--yes",
    is_flag=True,
    help="Skip questions about the job file and about paths outside this folder.",
)
python_option = click.option(
    "--python",
    metavar="PATH",
    help="Python used for training. Default: active environment, ./.venv, PATH.",
)


def open_root(root: Path | None, python: str | None) -> Root:
    if root is not None and not root.is_dir():
        from rocsteady.doctor.machine.recording import (  # noqa: PLC0415 - few commands read one
            RecordedRoot,
            read_recording,
        )

        return RecordedRoot(read_recording(root), python=python)
    if root is None and python is not None:
        python = _existing(python)
    return DiskRoot(root, python=python)


def interpreter_in(environment: Path) -> Path | None:
    paths = (environment / place for place in PLACES)
    return next((path for path in paths if path.is_file()), None)


def _existing(python: str) -> str:
    """Accept an interpreter, or the folder of an environment."""
    path = Path(python).absolute()
    if path.is_dir():
        path = interpreter_in(path) or path
    if not path.is_file():
        raise click.BadParameter(
            f"{python!r} is neither an interpreter nor an environment.", param_hint="--python"
        )
    return path.as_posix()


class Parsed(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """What a function reads; it is refused in the function's own words."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name, self._read = name, read

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        try:
            return self._read(value) if isinstance(value, str) else value
        except (ValueError, JournalError) as error:
            self.fail(str(error), param, ctx)


def _duration(text: str) -> timedelta:
    from rocsteady.run.job.quantities import duration  # noqa: PLC0415 - not for the doctor

    return duration(text)


duration_option = partial(click.option, type=Parsed("duration", _duration), show_default=True)
