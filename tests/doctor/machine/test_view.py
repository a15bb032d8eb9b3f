"""Every question is asked once, no answer raises, and a read that hangs costs its time once."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocsteady.doctor.machine.recording import RecordedPath, RecordedRoot
from rocsteady.doctor.machine.view import Unread, View, patiently, whole_number
from rocsteady.system.disk_root import DiskRoot
from rocsteady.system.root import Device, Disk
from tests.doctor.machine.recorded_files import Files, recording_of, root_of, view_of

DEVICE = Device(mode="0660", uid=0, gid=1, access="")
DISK = Disk(total=1, free=1, filesystem="", writable=True)


def test_answers() -> None:
    view = view_of(
        {
            "/text": " 42\n",
            "/hex": "0x2A",
            "/device": RecordedPath(device=DEVICE),
            "/disk": RecordedPath(disk=DISK),
            "/link": RecordedPath(link="/text"),
            "/script": RecordedPath(answer="I am"),
        }
    )

    assert view.text("/text") == "42"
    assert view.number("/text") == 42
    assert view.number("/hex") == 42
    assert view.piece("/text", 1, 1) == b"4"
    assert view.device("/device") == DEVICE
    assert view.disk("/disk") == DISK
    assert view.resolve("/link") == "/text"
    assert view.portrait("/script") == "I am"
    assert view.names("/") == ("device", "disk", "hex", "link", "script", "text")
    assert view.exists("/device")
    assert view.is_folder("/")


def test_what_is_missing_is_empty() -> None:
    view = view_of({})

    assert view.text("/a") is None
    assert view.number("/a") is None
    assert view.piece("/a", 0, 1) == b""
    assert view.names("/a") == ()
    assert view.device("/a") is None
    assert view.disk("/a") is None
    assert view.portrait("/a") is None
    assert view.resolve("/a/../b") == "/a/../b"
    assert not view.exists("/a")
    assert not view.is_folder("/a")
    assert not view.refused("/a")


def test_refused_is_not_missing() -> None:
    view = view_of(
        {"/a": RecordedPath(errno="EPERM"), "/b": RecordedPath(errno="EACCES"), "/c": "x"}
    )

    assert [view.refused(path) for path in ("/a", "/b", "/c")] == [True, True, False]
    assert view.exists("/a")


def test_something_below_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert not View(DiskRoot(tmp_path)).exists("/file/below")


def test_a_path_with_a_nul_byte_is_survived() -> None:
    view = View(DiskRoot())

    assert view.text("/proc/\0") is None
    assert not view.exists("/proc/\0")


class Counting(RecordedRoot):
    """Counts the questions that reach it."""

    asked = 0

    def text(self, path: str) -> str:
        self.asked += 1
        return super().text(path)


def test_every_question_is_asked_once() -> None:
    root = Counting(recording_of({"/a": "1"}))
    view = View(root)

    for _ in range(3):
        view.text("/a")
        view.text("/absent")

    assert root.asked == 2


def test_facts_are_counted_and_what_is_there_but_unread_is_listed_once_by_path() -> None:
    view = view_of({"/z": RecordedPath(errno="EPERM"), "/b": RecordedPath(errno="EIO"), "/a": "1"})

    view.text("/z")
    view.piece("/z", 0, 1)
    view.text("/b")
    view.text("/a")
    view.text("/absent")
    view.device("/a")

    assert view.facts_read == 1
    assert view.unread == (
        Unread(path="/b", why="Input/output error"),
        Unread(path="/z", why="no permission"),
    )


def test_after_the_deadline_nothing_is_asked() -> None:
    view = View(root_of({"/a": "1"}), deadline=time.monotonic() - 1)

    assert view.text("/a") is None
    assert not view.exists("/a")
    assert view.unread == (Unread(path="/a", why="no time left"),)


class Stuck(RecordedRoot):
    """Never returns from reading what is named so, until it is let go."""

    def __init__(self, files: Files) -> None:
        super().__init__(recording_of(files))
        self.let_go = threading.Event()

    def text(self, path: str) -> str:
        if "stuck" in path:
            self.let_go.wait()
        return super().text(path)


@contextmanager
def stuck(**files: str) -> Iterator[Stuck]:
    before = threading.active_count()
    root = Stuck({**files})
    try:
        yield root
    finally:
        root.let_go.set()
        deadline = time.monotonic() + 5
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert threading.active_count() == before, "a thread of ours is left"


def test_a_read_that_never_returns_is_given_up_and_the_rest_is_read() -> None:
    with stuck(**{"/a": "1", "/stuck": "x", "/b": "2"}) as root:
        began = time.monotonic()

        found, view = patiently(
            root, lambda view: [view.text("/a"), view.text("/stuck"), view.text("/b")]
        )

        assert time.monotonic() - began < 2.0
        assert found == ["1", None, "2"]
        assert view.facts_read == 2
        assert view.unread == (Unread(path="/stuck", why="no answer"),)


def test_many_reads_that_never_return_cost_no_more_than_all_the_time_there_is() -> None:
    with stuck(**{f"/stuck{index}": "" for index in range(20)}, **{"/a": "1"}) as root:
        began = time.monotonic()

        found, view = patiently(
            root,
            lambda view: [view.text("/a"), *(view.text(f"/stuck{index}") for index in range(20))],
        )

        assert time.monotonic() - began < 2.0
        assert found == ["1", *[None] * 20]
        assert {unread.why for unread in view.unread} == {"no answer", "no time left"}
        assert len(view.unread) == 20


def test_a_thread_that_comes_back_late_does_not_change_what_was_seen() -> None:
    with stuck(**{"/stuck": "late", "/after": "1"}) as root:
        found, view = patiently(root, lambda view: (view.text("/stuck"), view.text("/after")))
        root.let_go.set()
        time.sleep(0.1)

        assert found == (None, "1")
        assert view.text("/stuck") is None


def test_what_goes_wrong_while_looking_is_raised_where_it_was_asked_for() -> None:
    def look(view: View) -> None:
        raise LookupError(view.platform)

    with pytest.raises(LookupError, match="linux"):
        patiently(root_of({}), look)


def test_time_out_of_the_kernel_is_a_reason_like_any_other() -> None:
    class Slow(RecordedRoot):
        def text(self, path: str) -> str:
            raise OSError(errno.ETIMEDOUT, "", path)

    view = View(Slow(recording_of({})))

    assert view.text("/a") is None
    assert view.unread == (Unread(path="/a", why="Connection timed out"),)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("18446744073709551615", 2**64 - 1),
        ("0xffffffffffffffff", 2**64 - 1),
        ("0X1f", 31),
        (None, None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1_000", None),
        ("1.5", None),
        (" 1", None),
        ("0x", None),
        ("ff", None),
        ("9" * 21, None),
        ("٣", None),
        ("1\n", None),
    ],
)
def test_whole_number(text: str | None, number: int | None) -> None:
    assert whole_number(text) == number
