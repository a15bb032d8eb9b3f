"""The device nodes decide who may use a GPU; what cannot be told is not guessed."""

from __future__ import annotations

from rocsteady.doctor.machine.gpus import Access, Node, read_access
from rocsteady.doctor.machine.recording import Entry, RecordedRoot, Recording
from rocsteady.doctor.machine.root import Device, User
from rocsteady.doctor.machine.view import View

ALICE = User(uid=1000, groups={"1000": "alice", "992": "render"})


def access(files: dict[str, str | Entry], user: User | None = ALICE) -> Access:
    recording = Recording(
        version=1, note="", platform="linux", folder="/", files=files, environment={}, user=user
    )
    return read_access(View(RecordedRoot(recording)))


def device(gid: int, rights: str) -> Entry:
    return Entry(device=Device(mode="0660", uid=0, gid=gid, access=rights))


def test_nodes_that_may_be_read_and_written_are_usable() -> None:
    files: dict[str, str | Entry] = {
        "/dev/kfd": device(992, "rw"),
        "/dev/dri/renderD128": device(992, "rw"),
        "/dev/dri/card0": device(44, ""),
    }

    assert access(files) == Access(
        kfd=Node(path="/dev/kfd", mode="0660", group="render", usable=True),
        kfd_known=True,
        render=(Node(path="/dev/dri/renderD128", mode="0660", group="render", usable=True),),
        user=ALICE,
    )


def test_reading_alone_is_not_enough_and_an_unknown_group_keeps_its_number() -> None:
    files: dict[str, str | Entry] = {"/dev/kfd": device(109, "r")}

    assert access(files).kfd == Node(path="/dev/kfd", mode="0660", group="109", usable=False)


def test_no_node_is_an_answer() -> None:
    assert access({}) == Access(kfd=None, kfd_known=True, render=(), user=ALICE)


def test_a_copied_folder_cannot_say() -> None:
    assert access({}, user=None) == Access(kfd=None, kfd_known=False, render=(), user=None)


def test_a_plain_file_in_the_place_of_a_device_is_no_device() -> None:
    assert access({"/dev/kfd": "", "/dev/dri/renderD128": ""}) == Access(
        kfd=None, kfd_known=True, render=(), user=ALICE
    )
