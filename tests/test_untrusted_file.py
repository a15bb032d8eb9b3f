"""Whatever stands where a file should be: it is refused at once, and nothing else happens."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rocsteady_train.untrusted_file import open_regular, read_head, read_regular, read_tail

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="makes FIFOs and devices")
AT_MOST = 2.0  # seconds


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_fifo(path: Path) -> None:
    os.mkfifo(path.with_suffix(".fifo"))
    path.symlink_to(path.with_suffix(".fifo"))


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def loop(path: Path) -> None:
    path.symlink_to(path)


NOT_FILES: list[Callable[[Path], None]] = [
    fifo,
    link_to_fifo,
    bound_socket,
    loop,
    Path.mkdir,
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("/dev/tty"),
]


@pytest.mark.parametrize("make", NOT_FILES)
@pytest.mark.parametrize("read", [read_regular, read_head, read_tail])
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None], read: Callable[[Path, int], bytes]
) -> None:
    path = tmp_path / "999.page"
    make(path)
    refused: list[OSError] = []

    def attempt() -> None:
        try:
            read(path, 10)
        except OSError as error:
            refused.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(AT_MOST)

    assert not thread.is_alive()
    assert refused


def test_a_link_is_followed_only_where_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"content")
    link = tmp_path / "link"
    link.symlink_to("real")

    assert read_regular(link, 100) == b"content"
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(link, 100, follow=False)


def test_a_file_that_becomes_a_fifo_in_between_does_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "999.page", tmp_path / "real"
    real.touch()
    fifo(path)
    about = real.stat()
    monkeypatch.setattr("rocsteady_train.untrusted_file.os.stat", lambda *_, **__: about)

    with pytest.raises(OSError, match="not a regular file"):
        open_regular(path)


def test_sizes_are_limited(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")

    assert read_regular(path, 10) == b"0123456789"
    assert read_head(path, 3) == b"012"
    assert read_tail(path, 3) == b"789"
    assert read_tail(path, 30) == b"0123456789"
    with pytest.raises(OSError, match="larger than 9 bytes"):
        read_regular(path, 9)


def test_a_sparse_file_of_a_terabyte_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)

    with pytest.raises(OSError, match="larger than"):
        read_regular(path, 1000)
    assert read_tail(path, 4) == bytes(4)
