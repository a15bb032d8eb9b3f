"""Who is at the other end of a socket, also while nobody has accepted the connection."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from rocsteady.hangs.proof.holders import Descriptors, unix_peers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own table")


def inode(one: socket.socket) -> int:
    return os.fstat(one.fileno()).st_ino


def test_a_connection_that_was_never_accepted_belongs_to_the_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a loader worker that is stopped while the training fetches a tensor from it."""
    monkeypatch.chdir(tmp_path)  # a path of a socket is short
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind("here")
        listener.listen()
        client.connect("here")

        assert unix_peers()[inode(client)] == inode(listener)
        descriptors = Descriptors([os.getpid()])
        kind = descriptors.kind(os.getpid(), client.fileno())
        holders = descriptors.holders(descriptors.unix_peer(kind))
        accepted, _ = listener.accept()
        with accepted:
            assert unix_peers()[inode(client)] == inode(accepted)
    assert holders == {os.getpid()}
