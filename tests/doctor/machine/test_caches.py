"""MIOpen's folders are where its variables put them, on the nearest file system that exists."""

from __future__ import annotations

import pytest

from rocsteady.doctor.machine.recording import Entry, RecordedRoot, Recording
from rocsteady.doctor.machine.rocm import Cache, read_caches
from rocsteady.doctor.machine.root import Disk
from rocsteady.doctor.machine.view import View

ROOT = Disk(total=100, free=50, filesystem="ext4", writable=True)
HOME = Disk(total=10, free=5, filesystem="nfs4", writable=False)
FILES: dict[str, str | Entry] = {
    "/": Entry(disk=ROOT),
    "/home/alice": Entry(names=(), disk=HOME),
    "/scratch": Entry(names=(), disk=ROOT),
}


def caches(*, platform: str = "linux", **environment: str) -> tuple[Cache, ...]:
    recording = Recording(
        version=1, note="", platform=platform, folder="/", files=FILES, environment=environment
    )
    return read_caches(View(RecordedRoot(recording)))


def test_both_lie_below_the_home_folder_unless_moved() -> None:
    assert caches(HOME="/home/alice/") == (
        Cache(name="kernel cache", path="/home/alice/.cache/miopen", variable="", disk=HOME),
        Cache(name="user database", path="/home/alice/.config/miopen", variable="", disk=HOME),
    )


def test_each_is_moved_by_its_variable() -> None:
    found = caches(
        HOME="/home/alice", MIOPEN_CUSTOM_CACHE_DIR="/scratch/a/b", MIOPEN_USER_DB_PATH="/gone"
    )

    assert found == (
        Cache(
            name="kernel cache",
            path="/scratch/a/b",
            variable="MIOPEN_CUSTOM_CACHE_DIR",
            disk=ROOT,
        ),
        Cache(name="user database", path="/gone", variable="MIOPEN_USER_DB_PATH", disk=ROOT),
    )


@pytest.mark.parametrize("place", ["relative", "~/x", "/a/../../etc", "/a" * 3000])
def test_a_place_that_is_no_plain_absolute_path_is_not_followed(place: str) -> None:
    assert caches(MIOPEN_CUSTOM_CACHE_DIR=place) == ()


def test_nothing_is_known_without_a_home_and_on_windows() -> None:
    assert caches() == ()
    assert caches(platform="win32", HOME="/home/alice") == ()
