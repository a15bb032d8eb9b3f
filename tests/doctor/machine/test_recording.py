"""A recording may come from anyone: it is checked, and nothing in it leads anywhere else."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocsteady.doctor.machine.gpus import NODES
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.doctor.machine.recording import (
    MAX_NAMES,
    MAX_PATHS,
    RECORDING_LIMIT,
    RecordedPath,
    RecordedRoot,
    Recording,
    decode_recording,
    read_recording,
    record,
)
from rocsteady.doctor.machine.view import View
from rocsteady.errors import RecordingError
from rocsteady.store.redaction import Redactor
from rocsteady.system.disk_root import DiskRoot
from rocsteady.system.root import TEXT_LIMIT, Device, Root, User, resolve_inside
from tests.doctor.machine.recorded_files import Files, root_of, view_of

WHOLE: dict[str, Any] = {
    "version": 1,
    "note": "ours",
    "platform": "linux",
    "folder": "/home/user/work",
    "python": "/venv/bin/python",
    "own_prefix": "/ours",
    "user": {"uid": 1000, "groups": {"109": "render"}},
    "environment": {"HSA_XNACK": "1"},
    "files": {
        "/sys/x/gpu_id": "4711\n",
        "/sys/y/gpu_id": {"errno": "EPERM"},
        "/opt/rocm": {"link": "/opt/rocm-6.2.0"},
        "/opt/rocm-6.2.0/.info/version": "6.2.0\n",
        "/opt": {"names": ["google"]},
        "/dev/kfd": {"device": {"mode": "0660", "uid": 0, "gid": 109, "access": "rw"}},
        "/dev/shm": {"disk": {"total": 2, "free": 1, "filesystem": "tmpfs", "writable": True}},
        "/lib.so": {"pieces": {"0": "f0VMRg==", "64": "!"}},
        "/shims/python": {"answer": "I am"},
        "/locked": {"errno": "EACCES", "names": []},
    },
}


def written(**changes: object) -> bytes:
    return json.dumps({**WHOLE, **changes}).encode()


def root(**files: object) -> RecordedRoot:
    return RecordedRoot(decode_recording(written(files=files or WHOLE["files"]), "it"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a recording"),
        (b"\x80\x04", "not a recording"),
        (b"\xff\xfe{}", "not a recording"),
        (b"[1, 2]", "not a recording"),
        (b"{}", "not a recording: .*version"),
        (b"[" * 200_000, "not a recording"),
        (written(files={"/a": {"names": "x"}}), "not a recording: .*names"),
        (written(surprise=1), "not a recording: .*surprise"),
        (written(version=2), r"^it: version 2; this rocsteady reads 1$"),
        (written(version=2, surprise=1, files=[]), r"^it: version 2; this rocsteady reads 1$"),
        (written(files={"/a/../../etc/shadow": "x"}), "'/a/../../etc/shadow' is not a path"),
        (written(files={"etc/shadow": "x"}), "'etc/shadow' is not a path inside"),
        (written(files={"": "x"}), "'' is not a path inside"),
        (written(files={"/a" * 1000: "x"}), "is not a path inside"),
        (written(files={"/" + "a" * 5000: "x"}), "is not a path inside"),
        (written(files={"/a": "x" * (TEXT_LIMIT + 1)}), "'/a' is longer than"),
        (
            written(files={f"/{index}": "" for index in range(MAX_PATHS + 1)}),
            "more than 10000 paths",
        ),
        (written(files={"/a": {"names": ["x"] * (MAX_NAMES + 1)}}), "'/a' has more than"),
        (written(environment={"PATH": "/a:" * 100_000}), "'PATH' is longer than"),
    ],
)
def test_whatever_is_wrong_is_one_sentence(content: bytes, message: str) -> None:
    with pytest.raises(RecordingError, match=message) as caught:
        decode_recording(content, "it")

    assert str(caught.value).startswith("it: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_the_largest_hostile_tree_is_taken_in_within_two_seconds() -> None:
    files = {f"/{index}{'/a' * 45}": "" for index in range(MAX_PATHS)}
    content = written(files=files)
    took: list[float] = []
    for _ in range(3):  # the least counts: another process on the same core makes it slower
        began = time.process_time()
        found = RecordedRoot(decode_recording(content, "it"))
        took.append(time.process_time() - began)
        assert len(found.names("/")) == MAX_PATHS

    assert min(took) < 2.0


def test_a_file_is_read_and_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_bytes(written())

    assert read_recording(path) == decode_recording(written(), "it")

    path.write_bytes(b"no")
    with pytest.raises(RecordingError, match=r"machine\.json: not a recording"):
        read_recording(path)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"gone\.json: No such file"):
        read_recording(tmp_path / "gone.json")
    with pytest.raises(RecordingError, match="not a regular file"):
        read_recording(tmp_path)


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    with path.open("wb") as stream:
        stream.truncate(RECORDING_LIMIT + 1)  # sparse: takes no room

    with pytest.raises(RecordingError, match="larger than"):
        read_recording(path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no FIFOs in folders")
def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    if sys.platform != "win32":
        os.mkfifo(path)

    with pytest.raises(RecordingError, match="not a regular file"):
        read_recording(path)


def test_texts_links_errors_and_pieces_are_replayed() -> None:
    machine = root()

    assert machine.text("/sys/x/gpu_id") == "4711\n"
    assert machine.text("/opt/rocm/.info/version") == "6.2.0\n"
    assert machine.resolve("/opt/rocm/.info") == "/opt/rocm-6.2.0/.info"
    assert machine.piece("/lib.so", 0, 2) == b"\x7fE"
    assert machine.piece("/sys/x/gpu_id", 1, 2) == b"71"
    assert machine.answer("/shims/python") == "I am"
    assert machine.device("/dev/kfd").gid == 109
    assert machine.disk("/dev/shm").free == 1
    with pytest.raises(PermissionError):
        machine.text("/sys/y/gpu_id")


def test_names_are_those_recorded_and_those_implied() -> None:
    machine = root()

    assert machine.names("/opt") == ("google", "rocm", "rocm-6.2.0")
    assert machine.names("/opt/rocm") == (".info",)
    assert machine.names("/") == ("dev", "lib.so", "locked", "opt", "shims", "sys")
    assert machine.names("/opt/google") == ()
    assert machine.is_folder("/sys/x")
    assert not machine.is_folder("/sys/x/gpu_id")
    assert not machine.is_folder("/lib.so")
    assert not machine.is_folder("/dev/kfd")


def test_what_was_refused_is_still_there() -> None:
    machine = root()

    assert not machine.is_folder("/sys/y/gpu_id")
    assert machine.is_folder("/locked")
    with pytest.raises(PermissionError):
        machine.names("/locked")


def test_what_was_not_recorded_is_absent() -> None:
    machine = root()

    for question in (machine.text, machine.names, machine.is_folder, machine.disk):
        with pytest.raises(FileNotFoundError):
            question("/nowhere")
    with pytest.raises(FileNotFoundError):
        machine.piece("/lib.so", 4711, 2)
    with pytest.raises(FileNotFoundError):
        machine.text("/opt")
    with pytest.raises(NotADirectoryError):
        machine.names("/sys/x/gpu_id")
    with pytest.raises(OSError, match="not a device"):
        machine.device("/sys/x/gpu_id")
    with pytest.raises(OSError, match="not asked"):
        machine.answer("/sys/x/gpu_id")


def test_damaged_pieces_are_an_input_error() -> None:
    with pytest.raises(OSError, match="damaged") as caught:
        root().piece("/lib.so", 64, 1)

    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("name", ["EWHATEVER", "errorcode", "__name__", ""])
def test_an_error_that_does_not_exist_is_an_input_error(name: str) -> None:
    with pytest.raises(OSError, match="Input/output") as caught:
        root(**{"/a": {"errno": name}}).text("/a")

    assert caught.value.errno == errno.EIO


def test_hostile_links_stay_inside() -> None:
    machine = root(
        **{
            "/a": {"link": "../../../../etc/shadow"},
            "/b": {"link": "/proc/self/root/etc/shadow"},
            "/loop": {"link": "/loop"},
            "/grows": {"link": "grows/x"},
            "/c": {"link": "C:/Windows/../../../etc"},
        }
    )

    assert machine.resolve("/a") == "/etc/shadow"
    for path in ("/a", "/b", "/c"):
        with pytest.raises(FileNotFoundError):
            machine.text(path)
    for path in ("/loop", "/grows"):
        with pytest.raises(OSError, match="symbolic links"):
            machine.text(path)
    with pytest.raises(OSError, match="refused"):
        machine.text("/a/../etc/shadow")


def test_the_interpreter_that_the_user_names_goes_before_the_recorded_one() -> None:
    recording = decode_recording(written(), "it")

    assert RecordedRoot(recording).python == "/venv/bin/python"
    assert RecordedRoot(recording, python="/b").python == "/b"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    st.binary(max_size=100)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.tuples(st.sampled_from(sorted(WHOLE)), JSON).map(
        lambda pair: written(**{pair[0]: pair[1]})
    )
)
def test_no_bytes_raise_anything_but_a_recording_error(content: bytes) -> None:
    try:
        recording = decode_recording(content, "it")
    except RecordingError:
        return
    machine = RecordedRoot(recording)
    for path in ["/", *recording.files]:
        for question in (machine.text, machine.names, machine.is_folder, machine.answer):
            with contextlib.suppress(OSError):
                question(path)


RECORDINGS = sorted((Path(__file__).parents[2] / "machines").glob("*.json"))
KNOWN = {"HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES", "MIOPEN_USER_DB_PATH"}
replace = msgspec.structs.replace


def redactor() -> Redactor:
    return Redactor(
        homes=["/home/alice"], users=["alice"], hosts=["alices-box.lab.example", "alices-box"]
    )


def sent(view: View, hide: Redactor) -> bytes:
    return msgspec.json.encode(record(view, hide, KNOWN, "ours"))


def replayed(content: bytes) -> Machine:
    return examine(RecordedRoot(decode_recording(content, "it")), KNOWN)[0]


def redacted(machine: Machine, hide: Redactor) -> Machine:
    """Say what a replay may differ in: serials, the boot, and nothing else."""
    gpus = tuple(replace(gpu, serial=hide.serial(gpu.serial)) for gpu in machine.gpus.gpus)
    return replace(
        machine,
        gpus=replace(machine.gpus, gpus=gpus),
        system=replace(machine.system, boot_id=hide.text(machine.system.boot_id)),
    )


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_of_a_machine_replays_to_that_machine(path: Path) -> None:
    machine, view = examine(RecordedRoot(read_recording(path)), KNOWN)
    hide = redactor()

    again = replayed(sent(view, hide))

    assert again == redacted(machine, hide)


def test_a_recording_of_this_very_machine_can_be_replayed() -> None:
    home = os.environ.get("HOME", "/nowhere")
    hide = Redactor(homes=[home], users=[], hosts=[])
    machine, view = examine(DiskRoot(), KNOWN)

    again = replayed(sent(view, hide))

    assert again.system == redacted(machine, hide).system
    assert (again.driver, again.gpus) == (machine.driver, redacted(machine, hide).gpus)
    assert (again.limits, again.packages) == (machine.limits, machine.packages)
    assert (again.python is None) == (machine.python is None)


SECRETS = (
    "alice",
    "alices-box",
    "14922334455667788990",
    "6f1ed002-ab5a-4c1e-8a0a-1d2c3b4a5f60",
    "hf_abcdefghijklmnopqrstuvwx",
    "hunter2",
    "10.1.2.3",
    "0123456789abcdef" * 4,
)


def secretive() -> Root:
    group = f"/docker/{SECRETS[7]}"
    site = "/home/alice/venv/lib/python3.12/site-packages"
    files: Files = {
        f"{NODES}/1/gpu_id": "1\n",
        f"{NODES}/1/properties": f"simd_count 4\nunique_id {SECRETS[2]}\nhive_id {SECRETS[2]}\n",
        f"{NODES}/2/gpu_id": "2\n",
        f"{NODES}/2/properties": f"simd_count 4\nunique_id {SECRETS[2]}\nlocation_id 1\n",
        "/proc/sys/kernel/random/boot_id": f"{SECRETS[3]}\n",
        "/proc/cmdline": "iommu=pt nfsroot=10.1.2.3:/export/alice\n",
        "/proc/self/cgroup": f"0::{group}\n",
        f"/sys/fs/cgroup{group}/memory.max": "1024\n",
        "/etc/os-release": 'PRETTY_NAME="Linux of alices-box"\n',
        "/data/venvs/one/pyvenv.cfg": "version = 3.12.1\nprompt = alice\n",
        "/home/alice/venv": RecordedPath(link="/data/venvs/one"),
        f"{site.replace('/home/alice/venv', '/data/venvs/one')}/torch/version.py": (
            "__version__ = '2.9.1+rocm6.4'\nhip = '6.4'\n# built on alices-box by alice\n"
        ),
        "/dev/kfd": RecordedPath(device=Device(mode="0660", uid=0, gid=992, access="rw")),
        "/home/alice/lib": RecordedPath(names=("libamdhip64.so", "letter-to-alice.txt")),
    }
    return root_of(
        files,
        folder="/home/alice/secret-project",
        environment={
            "HOME": "/home/alice",
            "VIRTUAL_ENV": "/home/alice/venv",
            "LD_LIBRARY_PATH": "/home/alice/lib",
            "HF_TOKEN": SECRETS[4],
            "HIP_VISIBLE_DEVICES": "0",
            "MIOPEN_USER_DB_PATH": f"/scratch/{SECRETS[4]}",
            "HIP_PASSWORD": "hunter2",
            "USER": "alice",
        },
        user=User(uid=1234, groups={"1234": "alice", "992": "render"}),
        own_prefix="/home/alice/pipx",
    )


def test_nothing_that_names_a_person_a_host_or_a_card_remains() -> None:
    content = sent(examine(secretive(), KNOWN)[1], redactor()).decode()

    assert [secret for secret in SECRETS if secret in content] == []
    assert "letter" not in content


def test_what_is_left_still_fits_together() -> None:
    machine, view = examine(secretive(), KNOWN)

    again = replayed(sent(view, redactor()))

    assert [gpu.serial for gpu in again.gpus.gpus] == ["1", "1"]
    assert [gpu.partition for gpu in again.gpus.gpus] == [0, 1]
    assert again.torch is not None
    assert again.torch.version == "2.9.1+rocm6.4"
    assert again.python is not None
    assert again.python.prefix == "/home/user/venv"
    assert again.limits.memory_limit == 1024
    assert [shadow.folder for shadow in again.library_shadows] == ["/home/user/lib"]
    assert again.access.user == User(uid=1000, groups={"1234": "user", "992": "render"})
    assert again.facts_read == machine.facts_read


def test_root_stays_root() -> None:
    view = view_of({}, user=User(uid=0, groups={"0": "root"}))

    assert record(view, redactor(), KNOWN, "").user == User(uid=0, groups={"0": "root"})


def seen(base: Path, *questions: tuple[str, str]) -> Recording:
    """Return the recording of a folder of which these questions were asked."""
    view = View(DiskRoot(base))
    for operation, path in questions:
        question: Any = getattr(view, operation)
        question(path)
    return record(view, redactor(), KNOWN, "ours")


def test_links_are_recorded_once_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "opt/rocm-6.2.0/.info").mkdir(parents=True)
    (tmp_path / "opt/rocm-6.2.0/.info/version").write_text("6.2.0\n")
    (tmp_path / "opt/rocm").symlink_to("rocm-6.2.0")

    recording = seen(tmp_path, ("text", "/opt/rocm/.info/version"), ("exists", "/opt/rocm"))

    assert recording.files == {
        "/opt/rocm": RecordedPath(link="/opt/rocm-6.2.0"),
        "/opt/rocm-6.2.0": RecordedPath(names=()),
        "/opt/rocm-6.2.0/.info/version": "6.2.0\n",
    }


def test_absence_is_not_recorded_and_refusal_is(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    recording = seen(
        tmp_path,
        ("text", "/absent"),
        ("text", "/folder/.."),
        ("text", "/folder"),
        ("exists", "/a\n"),
    )

    assert recording.files == {"/folder": RecordedPath(errno="EINVAL")}


def test_of_a_long_listing_only_what_tells_something_is_kept(tmp_path: Path) -> None:
    (tmp_path / "opt").mkdir()
    for name in ("rocm", "rocm-6.2.0", "diary", "python3.12"):
        (tmp_path / "opt" / name).touch()

    recording = seen(tmp_path, ("names", "/opt"))

    assert recording.files == {"/opt": RecordedPath(names=("python3.12", "rocm", "rocm-6.2.0"))}


def test_a_text_that_grew_by_its_stand_ins_still_fits(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("bob " * (TEXT_LIMIT // 4))
    view = View(DiskRoot(tmp_path))
    view.text("/text")

    recording = record(view, Redactor(homes=[], users=["bob"], hosts=[]), KNOWN, "")

    assert decode_recording(msgspec.json.encode(recording), "it") == recording


class Hanging(DiskRoot):
    """A root whose one file must not be asked again."""

    def resolve(self, path: str) -> str:
        assert path != "/hangs", "it would hang again"
        return super().resolve(path)


def test_what_did_not_answer_is_not_asked_again(tmp_path: Path) -> None:
    view = View(Hanging(tmp_path))
    view.answers["text", "/hangs", ()] = TimeoutError(110, "no answer", "/hangs")

    recording = record(view, redactor(), KNOWN, "")

    assert recording.files == {"/hangs": RecordedPath(errno="ETIMEDOUT")}


def test_a_hostile_machine_gives_a_recording_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    files: Files = {
        "/proc/x": "",
        "/venv": RecordedPath(link="/venv"),
        "/opt": RecordedPath(names=("rocm-../../x", "rocm-7")),
    }
    environment = {"VIRTUAL_ENV": "venv", "LD_LIBRARY_PATH": "/a/../b:/" + "x" * 5000}
    root = root_of(files, folder="relative", environment=environment)

    machine, view = examine(root, KNOWN)

    assert replayed(sent(view, redactor())).python == machine.python


@pytest.mark.parametrize(
    "path",
    [
        "/sys/card/vendor",
        "/sys/card/other/vendor",
        "/sys/loop/x",
        "/sys//card/vendor",
        "/sys/card/..",
        "/sys/card/../x",
        "/" + "a/" * 3000,
        "C:/sys/card",
        "sys/card/vendor",
        "/",
        "",
    ],
)
def test_a_path_asked_again_leads_to_the_same_place(path: str) -> None:
    root = root_of(
        {
            "/sys/card": RecordedPath(link="devices/0"),
            "/sys/devices/0/other": RecordedPath(link="../1"),
            "/sys/devices/1/vendor": "1",
            "/sys/devices/0/vendor": "0",
            "/sys/loop": RecordedPath(link="/sys/loop"),
        }
    )

    def resolved(by: Callable[[str], str]) -> str:
        try:
            return by(path)
        except OSError as error:
            return str(error)

    links = {"/sys/card": "devices/0", "/sys/devices/0/other": "../1", "/sys/loop": "/sys/loop"}
    plain = resolved(lambda path: resolve_inside(path, links.get))

    assert [resolved(root.resolve) for _ in range(3)] == [plain] * 3
