"""ROCm of the system: where, which, and whether it stands in front of a wheel's own."""

from __future__ import annotations

import pytest

from rocsteady.doctor.machine.recording import RecordedPath
from rocsteady.doctor.machine.rocm import (
    Cache,
    RocmInstall,
    Shadow,
    read_caches,
    read_distribution_hsa,
    read_installs,
    read_shadows,
)
from rocsteady.doctor.machine.view import View
from rocsteady.system.root import Disk
from tests.doctor.machine.recorded_files import Files, view_of


def view(files: Files, **environment: str) -> View:
    return view_of(files, environment=environment)


def test_no_rocm_is_an_answer() -> None:
    assert read_installs(view({})) == ()
    assert read_shadows(view({})) == ()
    assert read_distribution_hsa(view({})) == ()


def test_an_install_and_the_link_to_it_are_one() -> None:
    files: Files = {
        "/opt/rocm": RecordedPath(link="/opt/rocm-6.2.0"),
        "/opt/rocm-6.2.0/.info/version": "6.2.0-66\n",
        "/opt/rocm-6.4.1/.info/version": "6.4.1-83\n",
        "/opt/rocm-empty": RecordedPath(names=()),
        "/opt/google/.info/version": "1\n",
    }

    assert read_installs(view(files)) == (
        RocmInstall(path="/opt/rocm-6.2.0", version="6.2.0-66"),
        RocmInstall(path="/opt/rocm-6.4.1", version="6.4.1-83"),
    )


def test_the_one_that_the_variable_names_is_found_elsewhere() -> None:
    files: Files = {"/usr/local/therock/.info/version": "7.0.0\n"}

    assert read_installs(view(files, ROCM_PATH="/usr/local/therock/")) == (
        RocmInstall(path="/usr/local/therock", version="7.0.0"),
    )


def test_a_relative_path_is_not_followed() -> None:
    assert read_installs(view({"/x/.info/version": "7"}, ROCM_PATH="x")) == ()


def test_folders_of_the_search_path_with_rocm_in_them_are_shadows() -> None:
    files: Files = {
        "/opt/rocm/lib": RecordedPath(
            names=("libamdhip64.so", "libamdhip64.so.6", "librocblas.so.4", "libfoo.so")
        ),
        "/usr/lib": RecordedPath(names=("libc.so.6", "libhipster.so")),
    }

    assert read_shadows(
        view(files, LD_LIBRARY_PATH="/usr/lib:/opt/rocm/lib/::/opt/rocm/lib:relative")
    ) == (
        Shadow(
            folder="/opt/rocm/lib",
            libraries=("libamdhip64.so", "libamdhip64.so.6", "librocblas.so.4"),
        ),
    )


def test_the_runtime_that_the_distribution_brought_is_named() -> None:
    place = "/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1"

    assert read_distribution_hsa(view({place: ""})) == (place,)


ROOT = Disk(total=100, free=50, filesystem="ext4", writable=True)
HOME = Disk(total=10, free=5, filesystem="nfs4", writable=False)
FILES: Files = {
    "/": RecordedPath(disk=ROOT),
    "/home/alice": RecordedPath(names=(), disk=HOME),
    "/scratch": RecordedPath(names=(), disk=ROOT),
}


def caches(*, platform: str = "linux", **environment: str) -> tuple[Cache, ...]:
    return read_caches(view_of(FILES, platform=platform, environment=environment))


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
            name="kernel cache", path="/scratch/a/b", variable="MIOPEN_CUSTOM_CACHE_DIR", disk=ROOT
        ),
        Cache(name="user database", path="/gone", variable="MIOPEN_USER_DB_PATH", disk=ROOT),
    )


@pytest.mark.parametrize("place", ["relative", "~/x", "/a/../../etc", "/a" * 3000])
def test_a_place_that_is_no_plain_absolute_path_is_not_followed(place: str) -> None:
    assert caches(MIOPEN_CUSTOM_CACHE_DIR=place) == ()


def test_nothing_is_known_without_a_home_and_on_windows() -> None:
    assert caches() == ()
    assert caches(platform="win32", HOME="/home/alice") == ()
