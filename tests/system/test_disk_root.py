"""A folder is never left, nothing but regular files is opened, and every read has an end."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocsteady.doctor.machine.view import Unread, View
from rocsteady.system.disk_root import DiskRoot, filesystem_of
from rocsteady.system.root import TEXT_LIMIT, Device

if os.name == "nt":
    pytest.skip("needs Linux", allow_module_level=True)
assert sys.platform != "win32"  # tells mypy the same

DEVICE_NUMBER = os.makedev(1, 3)  # /dev/null


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Put a file beside the root, where nothing inside must lead."""
    path = tmp_path / "secret"
    path.write_text("outside")
    return path


@pytest.fixture
def base(tmp_path: Path, secret: Path) -> Path:
    assert secret.exists()
    path = tmp_path / "root"
    (path / "etc").mkdir(parents=True)
    (path / "etc/os-release").write_text("inside\n")
    return path


def test_files_and_folders_are_read(base: Path) -> None:
    root = DiskRoot(base)

    assert root.text("/etc/os-release") == "inside\n"
    assert root.piece("/etc/os-release", 2, 3) == b"sid"
    assert root.piece("/etc/os-release", 100, 3) == b""
    assert root.names("/") == ("etc",)
    assert root.is_folder("/etc")
    assert not root.is_folder("/etc/os-release")
    assert root.resolve("/etc/os-release") == "/etc/os-release"


def test_absence_is_said_as_such(base: Path) -> None:
    root = DiskRoot(base)

    questions: tuple[Callable[[str], object], ...] = (
        root.text, root.names, root.is_folder, root.device, root.disk,
    )  # fmt: skip
    for question in questions:
        with pytest.raises(FileNotFoundError):
            question("/absent")


def test_a_folder_knows_neither_user_nor_variables_nor_us(base: Path) -> None:
    root = DiskRoot(base)

    assert (root.environment, root.user, root.own_prefix) == (None, None, "")
    assert (root.platform, root.folder) == ("linux", "/")


def test_links_resolve_inside(base: Path) -> None:
    (base / "relative").symlink_to("etc/os-release")
    (base / "absolute").symlink_to("/etc/os-release")
    (base / "folder").symlink_to("/etc")

    root = DiskRoot(base)

    for path in ("/relative", "/absolute", "/folder/os-release"):
        assert root.text(path) == "inside\n"
        assert root.resolve(path) == "/etc/os-release"


def test_links_that_lead_outside_are_anchored_in_the_root_again(base: Path, secret: Path) -> None:
    (base / "absolute").symlink_to(secret)
    (base / "climbing").symlink_to("../secret")
    (base / "etc/climbing").symlink_to("../../../../../../../../../etc/os-release")
    (base / "through").symlink_to("/proc/self/root")
    root = DiskRoot(base)

    for path in ("/absolute", "/climbing", f"/through{secret}"):
        with pytest.raises(FileNotFoundError):
            root.text(path)
    assert root.text("/etc/climbing") == "inside\n"


def test_a_folder_beside_the_root_is_not_reached_by_a_name_like_a_drive(base: Path) -> None:
    beside = base.with_name("rootC:")
    beside.mkdir()
    (beside / "secret").write_text("outside")

    with pytest.raises(FileNotFoundError):
        DiskRoot(base).text("C:/secret")


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


def make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | 0o020000, DEVICE_NUMBER)
    except PermissionError:
        pytest.skip("needs the right to make a device node")


@pytest.mark.parametrize("make", [make_fifo, make_socket, make_device])
def test_what_is_not_a_regular_file_is_never_opened(
    base: Path, make: Callable[[Path], None]
) -> None:
    make(base / "odd")
    (base / "link").symlink_to("odd")
    root = DiskRoot(base)
    began = time.monotonic()

    for path in ("/odd", "/link"):
        with pytest.raises(OSError, match="not a regular file"):
            root.text(path)
        with pytest.raises(OSError, match="not a regular file"):
            root.piece(path, 10, 10)
        assert not root.is_folder(path)

    assert time.monotonic() - began < 0.5


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_is_left_open(base: Path) -> None:
    make_fifo(base / "fifo")
    root = DiskRoot(base)
    view = View(root)
    before = open_descriptors()

    for path in ("/etc/os-release", "/etc", "/fifo", "/absent"):
        view.text(path)
        view.piece(path, 2**64 - 1, 1)
        view.names(path)

    assert open_descriptors() == before


def test_a_file_of_ten_megabytes_is_read_as_far_as_a_fact_may_be_long(base: Path) -> None:
    (base / "long").write_bytes(b"x" * 10_000_000)

    assert DiskRoot(base).text("/long") == "x" * TEXT_LIMIT


def test_garbage_is_text_too(base: Path) -> None:
    (base / "garbage").write_bytes(b"\xff\x00\x80ok")

    assert DiskRoot(base).text("/garbage") == "\ufffd\0\ufffdok"


def test_names_that_are_not_utf8_are_survived(base: Path) -> None:
    (base / os.fsdecode(b"a\xff")).touch()

    assert DiskRoot(base).names("/") == ("a?", "etc")


def test_an_offset_that_no_file_has_reads_nothing(base: Path) -> None:
    view = View(DiskRoot(base))

    assert view.piece("/etc/os-release", 2**64 - 1, 4) == b""
    assert view.piece("/etc/os-release", 2**63, 4) == b""


def as_nobody(task: Callable[[], object]) -> object:
    """Run ``task`` in a child that is an ordinary user; return what it returned, as JSON does."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writing, json.dumps(task()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return json.loads(said)


def test_what_may_not_be_read_is_refused_to_an_ordinary_user() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        base = Path(name)
        base.chmod(0o755)
        (base / "public").write_text("x")
        (base / "private").write_text("x")
        (base / "private").chmod(0o600)
        (base / "closed").mkdir(mode=0o700)

        def look() -> object:
            view = View(DiskRoot(base))
            answers = [view.text("/public"), view.text("/private"), view.exists("/closed/x")]
            return [*answers, view.refused("/private"), [[u.path, u.why] for u in view.unread]]

        assert as_nobody(look) == [
            "x",
            None,
            False,
            True,
            [["/closed/x", "no permission"], ["/private", "no permission"]],
        ]


def test_a_device_is_described_with_the_rights_of_who_looks(base: Path) -> None:
    make_device(base / "kfd")
    (base / "kfd").chmod(0o660)
    facts = (base / "kfd").stat()
    root = DiskRoot(base)

    assert root.device("/kfd") == Device(
        mode="0660", uid=facts.st_uid, gid=facts.st_gid, access="rw"
    )
    with pytest.raises(OSError, match="not a device"):
        root.device("/etc")


def test_a_file_system_is_described(base: Path) -> None:
    disk = DiskRoot(base).disk("/etc")

    assert 0 <= disk.free <= disk.total
    assert (disk.filesystem, disk.writable) == ("", True)


def test_a_copied_interpreter_is_not_run(base: Path) -> None:
    with pytest.raises(OSError, match="not run"):
        DiskRoot(base).answer("/etc/os-release")


def test_the_live_machine_is_read_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSA_XNACK", os.fsdecode(b"1\xff"))
    root = DiskRoot()

    assert root.text("/proc/self/stat").startswith(f"{os.getpid()} ")
    assert root.platform == sys.platform
    assert root.folder == Path.cwd().as_posix()
    assert root.own_prefix == sys.prefix
    assert root.resolve("/proc/self") == f"/proc/{os.getpid()}"
    assert root.environment is not None
    assert root.environment["HSA_XNACK"] == "1?"
    assert root.user is not None
    assert root.user.uid == os.getuid()
    assert str(os.getgid()) in root.user.groups
    assert root.disk("/dev/shm").filesystem == "tmpfs"
    assert root.device("/dev/null").access == "rw"


def test_a_working_folder_that_was_removed_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert DiskRoot().folder == "/"


def shim(tmp_path: Path, text: str) -> str:
    path = tmp_path / "python3"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_is_asked_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert DiskRoot().answer(shim(tmp_path, "pwd")) == f"{tmp_path.resolve()}\n"


def test_an_interpreter_says_of_itself_where_it_lives(tmp_path: Path) -> None:
    said = json.loads(DiskRoot().answer(shim(tmp_path, f'exec "{sys.executable}" "$@"')))

    assert said[1:] == [sys.executable, "{}.{}.{}".format(*sys.version_info), sys.platform]


@pytest.mark.parametrize(
    ("text", "why"),
    [("trap '' TERM; sleep 60", "asked, timed out"), ("exit 3", "asked, ended with 3")],
)
def test_an_interpreter_that_does_not_say_is_unread(tmp_path: Path, text: str, why: str) -> None:
    path = shim(tmp_path, text)
    view = View(DiskRoot())

    assert view.portrait(path) is None
    assert view.unread == (Unread(path=path, why=why),)


MOUNTS = r"""22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
23 22 0:21 / /proc rw - proc proc rw
30 22 0:26 / /home rw - nfs4 server:/home rw
31 30 0:27 / /home/alice rw - autofs auto rw
32 31 0:28 / /home/alice rw - nfs4 server:/home/alice rw
33 22 0:29 / /with\040space\134 rw - xfs /dev/sdb rw
34 22 0:30 / /data rw - btrfs /dev/sdc rw"""


@pytest.mark.parametrize(
    ("path", "filesystem"),
    [
        ("/", "ext4"),
        ("/etc", "ext4"),
        ("/home", "nfs4"),
        ("/home/alice/work", "nfs4"),  # the later mount at one place hides the earlier
        ("/home/alicia", "nfs4"),
        ("/homework", "ext4"),
        ("/with space\\/x", "xfs"),
        ("/database", "ext4"),
    ],
)
def test_the_longest_mount_that_holds_a_path_counts(path: str, filesystem: str) -> None:
    assert filesystem_of(path, MOUNTS) == filesystem


@pytest.mark.parametrize("text", ["", "a b c", "1 2 3 4 / - ", "1 2 3 4 / -  x", " - - - "])
def test_mounts_that_do_not_tell_leave_it_open(text: str) -> None:
    assert filesystem_of("/", text) == ""


@settings(derandomize=True, max_examples=80, deadline=None)
@given(path=st.text(max_size=10), text=st.text(max_size=60) | st.from_regex(r"(\S+ ){4,6}- \S*\n"))
def test_no_mountinfo_is_too_strange(path: str, text: str) -> None:
    assert isinstance(filesystem_of(path, text), str)


def test_hipinfo_is_believed_even_if_it_crashes_after_it_told_all(tmp_path: Path) -> None:
    tool = tmp_path / "hipInfo.exe"
    tool.write_text("#!/bin/sh\necho 'gcnArchName: gfx1201'\nkill -SEGV $$\n")
    tool.chmod(0o755)

    assert DiskRoot().answer(str(tool)) == "gcnArchName: gfx1201\n"
