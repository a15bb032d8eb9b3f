"""The whole of a machine is read from any root, however strange; only an empty one is refused."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocsteady.doctor.machine.gpus import NODES
from rocsteady.doctor.machine.machine import (
    Machine,
    changes,
    examine,
    examined,
    software_of,
)
from rocsteady.doctor.machine.recording import (
    MAX_NAMES,
    RecordedPath,
    RecordedRoot,
    decode_recording,
    read_recording,
    record,
)
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.machine.windows import ADAPTERS
from rocsteady.errors import ExaminationError, RecordingError
from rocsteady.store.redaction import Redactor
from rocsteady.system.disk_root import DiskRoot
from tests.doctor.machine.recorded_files import Files, root_of

if TYPE_CHECKING:
    from tests.conftest import Recorded

RECORDINGS = sorted((Path(__file__).parents[2] / "machines").glob("*.json"))
KNOWN = {"HSA_OVERRIDE_GFX_VERSION"}


def machine_of(files: Files, *, platform: str = "linux", **environment: str) -> Machine:
    root = root_of(files, platform=platform, folder="/work", environment=environment)
    return examine(root, KNOWN)[0]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_recorded_machine_can_be_written_and_read_again(path: Path) -> None:
    machine, view = examine(RecordedRoot(read_recording(path)), KNOWN)

    assert msgspec.json.decode(msgspec.json.encode(machine), type=Machine) == machine
    assert machine.facts_read == view.facts_read
    assert machine.unread == view.unread


def test_a_root_that_holds_no_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExaminationError):
        examine(DiskRoot(tmp_path), KNOWN)


def test_a_machine_that_says_next_to_nothing_is_a_machine() -> None:
    machine = machine_of({"/proc/version": ""}, HSA_OVERRIDE_GFX_VERSION="10.3.0")

    assert (machine.python, machine.torch, machine.packages) == (None, None, {})
    assert machine.variables == (SetVariable(name="HSA_OVERRIDE_GFX_VERSION", value="10.3.0"),)
    assert machine.variables_known


def test_a_copied_folder_does_not_know_variables(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()

    machine, _ = examine(DiskRoot(tmp_path), KNOWN)

    assert (machine.variables, machine.variables_known) == ((), False)
    assert not machine.access.kfd_known


def test_windows_is_surveyed_by_its_adapters() -> None:
    files: Files = {f"{ADAPTERS}/0000/MatchingDeviceId": r"PCI\VEN_1002&DEV_7550"}

    machine = machine_of(files, platform="win32")

    assert machine.system.os == "windows"
    assert [gpu.device for gpu in machine.gpus.gpus] == [0x7550]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no FIFOs in folders")
def test_a_fifo_below_a_folder_root_costs_nothing(tmp_path: Path) -> None:
    node = tmp_path / NODES.lstrip("/") / "1"
    node.mkdir(parents=True)
    if sys.platform != "win32":
        os.mkfifo(node / "properties")
    (node / "gpu_id").write_text("1\n")
    began = time.monotonic()

    machine, _ = examine(DiskRoot(tmp_path), KNOWN)

    assert time.monotonic() - began < 1.0
    assert [gpu.node for gpu in machine.gpus.gpus] == [1]
    assert [(unread.path, unread.why) for unread in machine.unread] == [
        (f"{NODES}/1/properties", "not a regular file")
    ]


def test_a_recording_that_names_all_the_nodes_it_may_has_an_end() -> None:
    names = tuple(str(index) for index in range(MAX_NAMES))
    files: Files = {
        NODES: RecordedPath(names=names),
        "/sys/bus/pci/devices": RecordedPath(names=names),
        "/proc/self/cgroup": "0::" + "/a" * 30_000,
    }
    took = []
    for _ in range(3):  # the least: others on the machine only add to it
        began = time.process_time()
        machine = machine_of(files, PATH="/x:" * 40_000, HOME="/" + "h/" * 60_000)
        took.append(time.process_time() - began)
        assert machine.gpus.gpus == ()

    assert min(took) < 2.0


# One machine of each kind: what it holds is what there is to make strange.
SAMPLES = {
    path.stem: read_recording(path)
    for path in RECORDINGS
    if path.stem in {"rx7900xt-pair", "old-kernel", "rx9070xt-windows", "withheld", "wsl2-bridge"}
}
LINES = st.from_regex(r"([\w.:+-]{1,12}[ =:,]{0,2}[\w./'-]{0,24}\n){0,4}", fullmatch=True)
ENTRIES = st.builds(
    RecordedPath,
    link=st.none() | st.sampled_from(["/", "..", "../../x", "/sys", "loop", "C:/x"]),
    errno=st.none() | st.sampled_from(["EIO", "EPERM", "ENOENT", "errorcode", "ETIMEDOUT"]),
    names=st.none() | st.tuples(st.text(max_size=8), st.sampled_from(["1", "..", "rocm", "x/y"])),
    pieces=st.none() | st.dictionaries(st.sampled_from(["0", "64", "x"]), st.text(max_size=20)),
    answer=st.none() | st.text(max_size=20),
)
STRANGE = st.text(max_size=60) | LINES | st.integers(0, 2**70).map(str) | ENTRIES


@settings(
    derandomize=True,
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_no_files_make_the_examination_fail(data: st.DataObject) -> None:
    recording = SAMPLES[data.draw(st.sampled_from(sorted(SAMPLES)))]
    chosen = data.draw(st.lists(st.sampled_from(sorted(recording.files)), max_size=6))
    changed = {path: data.draw(STRANGE) for path in chosen}
    variables = data.draw(
        st.dictionaries(
            st.sampled_from([*recording.environment, "PATH", "HOME", "LD_LIBRARY_PATH", "HIP_X"]),
            st.text(max_size=20),
            max_size=3,
        )
    )
    strange = msgspec.structs.replace(
        recording,
        files={**recording.files, **changed, "/proc/version": ""},
        environment={**recording.environment, **variables},
    )

    machine, view = examine(RecordedRoot(strange), KNOWN)

    assert msgspec.json.encode(machine)
    sent = record(view, Redactor(homes=[], users=[], hosts=[]), KNOWN, "")
    try:
        again = decode_recording(msgspec.json.encode(sent), "it")
    except RecordingError as error:  # pragma: no cover - what we write, we read
        pytest.fail(str(error))
    examine(RecordedRoot(again), KNOWN)


def test_every_machine_has_one_line(recorded: Recorded, every_machine: str) -> None:
    line = software_of(recorded.machine(every_machine))

    assert line.startswith("GPU ")
    assert "\n" not in line
    assert changes(line, line) == ""


def test_a_machine_with_two_cards(recorded: Recorded) -> None:
    machine = recorded.machine("rx7900xt-pair")

    line = software_of(machine)

    assert line.startswith("GPU 2 x gfx1100; driver ")
    assert machine.torch is not None
    assert f"; torch {machine.torch.version}; Python " in line


def test_without_a_gpu_its_driver_makes_no_difference(recorded: Recorded) -> None:
    line = software_of(recorded.machine("no-amd-gpu"))

    assert line.startswith("GPU none; torch ")


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ("GPU a; torch 2.9.1", "GPU a; torch 2.10.0", "torch 2.9.1, now 2.10.0"),
        (
            "GPU a; driver 6.8; torch 2",
            "GPU a; driver 6.9; torch 3",
            "driver 6.8, now 6.9; torch 2, now 3",
        ),
        ("GPU a; ROCm 6.2", "GPU a", "ROCm 6.2, now none"),
        ("", "GPU a", "GPU none, now a"),
    ],
)
def test_only_what_changed_is_told(before: str, now: str, said: str) -> None:
    assert changes(before, now) == said


@pytest.mark.skipif(os.name == "nt", reason="the layout of an environment on Linux")
def test_the_python_that_a_command_names_is_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Recorded
) -> None:
    packages = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / "torch"
    packages.mkdir(parents=True)
    (packages / "version.py").write_text("__version__ = '2.9.1+rocm6.4'\nhip = '6.4.43482'\n")
    (tmp_path / "env" / "pyvenv.cfg").write_text("version = 3.11.7\n")
    (tmp_path / "env" / "bin").mkdir()
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)

    for python in ("env/bin/python", f"{tmp_path}/env/bin/python"):
        machine = examined(recorded.knowledge, (python, "train.py"))
        assert software_of(machine).endswith("torch 2.9.1+rocm6.4; Python 3.11.7")
    unnamed = examined(recorded.knowledge, ("./train.sh",))
    assert "2.9.1+rocm6.4" not in software_of(unnamed)
