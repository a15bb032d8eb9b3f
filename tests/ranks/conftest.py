"""An interpreter with torch and rocsteady-train; the command is in another environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from host_faults import Job

CHECKOUT = Path(__file__).parents[2]
VENV = CHECKOUT / ".ci" / "ranks-venv"


@pytest.fixture(scope="session")
def ranks_python(torch_python: str) -> str:
    """Return it; what torch needs is shared, and rocsteady-train is this checkout's."""
    from beside_torch import python_with  # noqa: PLC0415 - of POSIX

    python = python_with((), VENV, torch_python)
    asks = "import sysconfig; print(sysconfig.get_path('purelib'))"
    told = subprocess.run([python, "-c", asks], check=True, capture_output=True, text=True)
    packages = Path(told.stdout.strip())
    (packages / "rocsteady-train.pth").write_text(
        f"{CHECKOUT / 'packages' / 'rocsteady_train' / 'src'}\n", encoding="utf-8"
    )
    about = packages / "rocsteady_train.dist-info"
    about.mkdir(exist_ok=True)
    for name in ("METADATA", "entry_points.txt"):
        text = distribution("rocsteady-train").read_text(name) or ""
        (about / name).write_text(text, encoding="utf-8")
    return python


@pytest.fixture
def start(
    tmp_path: Path, ranks_python: str, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Job]]:
    """Return what starts a job over so many hosts; nothing of them is left."""
    from host_faults import Job, Setting, network  # noqa: PLC0415 - of POSIX

    with ExitStack() as left:

        def starts(hosts: int, steps: int, **setting: Any) -> Job:  # noqa: ANN401 - fields
            net = left.enter_context(network(hosts))
            job = Job(ranks_python, net, tmp_path / "job", Setting(steps, **setting))
            left.callback(job.close)
            left.callback(lambda: sys.stdout.write(f"\n{request.node.name}: {job.summary()}\n"))
            return job

        yield starts
