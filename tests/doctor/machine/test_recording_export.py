"""What leaves the machine replays to the same machine, and names nobody."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rocsteady.doctor.machine.disk_root import DiskRoot
from rocsteady.doctor.machine.gpus import NODES
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.doctor.machine.recording import (
    Entry,
    RecordedRoot,
    Recording,
    decode_recording,
    read_recording,
    record,
)
from rocsteady.doctor.machine.root import TEXT_LIMIT, Device, Root, User
from rocsteady.doctor.machine.view import View
from rocsteady.store.redaction.redactor import Redactor

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
    files: dict[str, str | Entry] = {
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
        "/home/alice/venv": Entry(link="/data/venvs/one"),
        f"{site.replace('/home/alice/venv', '/data/venvs/one')}/torch/version.py": (
            "__version__ = '2.9.1+rocm6.4'\nhip = '6.4'\n# built on alices-box by alice\n"
        ),
        "/dev/kfd": Entry(device=Device(mode="0660", uid=0, gid=992, access="rw")),
        "/home/alice/lib": Entry(names=("libamdhip64.so", "letter-to-alice.txt")),
    }
    return RecordedRoot(
        Recording(
            version=1,
            note="",
            platform="linux",
            folder="/home/alice/secret-project",
            files=files,
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
            python=None,
            own_prefix="/home/alice/pipx",
        )
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
    view = View(
        RecordedRoot(
            Recording(
                version=1,
                note="",
                platform="linux",
                folder="/",
                files={},
                environment={},
                user=User(uid=0, groups={"0": "root"}),
            )
        )
    )

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
        "/opt/rocm": Entry(link="/opt/rocm-6.2.0"),
        "/opt/rocm-6.2.0": Entry(names=()),
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

    assert recording.files == {"/folder": Entry(errno="EINVAL")}


def test_of_a_long_listing_only_what_tells_something_is_kept(tmp_path: Path) -> None:
    (tmp_path / "opt").mkdir()
    for name in ("rocm", "rocm-6.2.0", "diary", "python3.12"):
        (tmp_path / "opt" / name).touch()

    recording = seen(tmp_path, ("names", "/opt"))

    assert recording.files == {"/opt": Entry(names=("python3.12", "rocm", "rocm-6.2.0"))}


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

    assert recording.files == {"/hangs": Entry(errno="ETIMEDOUT")}


def test_a_hostile_machine_gives_a_recording_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    files: dict[str, str | Entry] = {
        "/proc/x": "",
        "/venv": Entry(link="/venv"),
        "/opt": Entry(names=("rocm-../../x", "rocm-7")),
    }
    root = RecordedRoot(
        Recording(
            version=1,
            note="",
            platform="linux",
            folder="relative",
            files=files,
            environment={"VIRTUAL_ENV": "venv", "LD_LIBRARY_PATH": "/a/../b:/" + "x" * 5000},
        )
    )

    machine, view = examine(root, KNOWN)

    assert replayed(sent(view, redactor())).python == machine.python
