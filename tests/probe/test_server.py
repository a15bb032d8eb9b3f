"""The process that forks: it holds nothing that a fork could trip over, and never gets stuck."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocsteady.probe.processes import Forks, lay_out

pytestmark = pytest.mark.slow

STARTS = int(os.environ.get("ROCSTEADY_TEST_STARTS", "3"))
SUITE = 30
PAYLOADS: tuple[tuple[str, dict[str, object]], ...] = (
    ("kernels:convolution_gradient", {}),
    ("runtime:copies", {"pinned": False, "bytes": 4096}),
    ("kernels:matmul_gradient", {"precision": "fp32"}),
    ("kernels:attention_backward", {"backend": "math"}),
    ("runtime:loader", {"workers": 0, "method": "", "pinned": False}),
    ("runtime:device_visible", {}),
)
COUNT = "import torch, os; print(len(os.listdir('/proc/self/task')))"


def start(python: str, folder: Path) -> Forks:
    folder.mkdir()
    return Forks(python, lay_out(folder), folder, dict(os.environ), f"probe-{os.getpid()}")


@pytest.fixture
def forks(tmp_path: Path, torch_python: str) -> Iterator[Forks]:
    made = start(torch_python, tmp_path / "forks")
    yield made
    made.close()


def request(folder: Path, number: int) -> dict[str, object]:
    payload, arguments = PAYLOADS[number % len(PAYLOADS)]
    mine = folder / f"probe-{number}"
    mine.mkdir()
    return {
        "probe": payload,
        "payload": payload,
        "arguments": arguments,
        "tries": 2,
        "seconds": 10.0,
        "folder": str(mine),
    }


def outcomes(forks: Forks, folder: Path, count: int) -> list[str]:
    """Run payloads one after another, as a suite does."""
    found = []
    for number in range(count):
        wanted = request(folder, number)
        payload = forks.fork(wanted)
        for _ in range(60):
            ended = payload.ended(1.0)
            if ended is not None:
                break
        else:
            pytest.fail(f"stuck: {wanted['payload']}, number {number}")
        payload.close()
        assert ended.code == 0
        result = json.loads(Path(str(wanted["folder"]), "result.json").read_text())
        found.append(result["observation"]["outcome"])
    return found


def test_it_holds_no_device_no_thread_and_no_lock(
    forks: Forks, tmp_path: Path, torch_python: str
) -> None:
    assert set(outcomes(forks, tmp_path, 6)) == {"ok", "not run"}

    plain = subprocess.run([torch_python, "-c", COUNT], check=True, capture_output=True, text=True)
    process = Path(f"/proc/{forks.pid}")
    opened = [str(each.readlink()) for each in (process / "fd").iterdir()]
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    # Fewer are fine: OpenBLAS, which comes with numpy, ends its threads before a fork.
    assert len(list((process / "task").iterdir())) <= int(plain.stdout)
    assert not [each for each in opened if each.startswith("/dev/") and each != "/dev/null"]
    assert not [line for line in locks if str(forks.pid) in line]


def test_many_suites_never_get_stuck(tmp_path: Path, torch_python: str) -> None:
    for number in range(STARTS):
        forks = start(torch_python, tmp_path / f"forks-{number}")
        try:
            found = outcomes(forks, tmp_path / f"forks-{number}", SUITE)
        finally:
            forks.close()
        assert set(found) == {"ok", "not run"}
        assert len(found) == SUITE
