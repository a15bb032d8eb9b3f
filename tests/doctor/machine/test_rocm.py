"""ROCm of the system: where, which, and whether it stands in front of a wheel's own."""

from __future__ import annotations

from rocsteady.doctor.machine.recording import Entry, RecordedRoot, Recording
from rocsteady.doctor.machine.rocm import (
    RocmInstall,
    Shadow,
    read_distribution_hsa,
    read_installs,
    read_shadows,
)
from rocsteady.doctor.machine.view import View


def view(files: dict[str, str | Entry], **environment: str) -> View:
    return View(
        RecordedRoot(
            Recording(
                version=1,
                note="",
                platform="linux",
                folder="/",
                files=files,
                environment=environment,
            )
        )
    )


def test_no_rocm_is_an_answer() -> None:
    assert read_installs(view({})) == ()
    assert read_shadows(view({})) == ()
    assert read_distribution_hsa(view({})) == ()


def test_an_install_and_the_link_to_it_are_one() -> None:
    files: dict[str, str | Entry] = {
        "/opt/rocm": Entry(link="/opt/rocm-6.2.0"),
        "/opt/rocm-6.2.0/.info/version": "6.2.0-66\n",
        "/opt/rocm-6.4.1/.info/version": "6.4.1-83\n",
        "/opt/rocm-empty": Entry(names=()),
        "/opt/google/.info/version": "1\n",
    }

    assert read_installs(view(files)) == (
        RocmInstall(path="/opt/rocm-6.2.0", version="6.2.0-66"),
        RocmInstall(path="/opt/rocm-6.4.1", version="6.4.1-83"),
    )


def test_the_one_that_the_variable_names_is_found_elsewhere() -> None:
    files: dict[str, str | Entry] = {"/usr/local/therock/.info/version": "7.0.0\n"}

    assert read_installs(view(files, ROCM_PATH="/usr/local/therock/")) == (
        RocmInstall(path="/usr/local/therock", version="7.0.0"),
    )


def test_a_relative_path_is_not_followed() -> None:
    assert read_installs(view({"/x/.info/version": "7"}, ROCM_PATH="x")) == ()


def test_folders_of_the_search_path_with_rocm_in_them_are_shadows() -> None:
    files: dict[str, str | Entry] = {
        "/opt/rocm/lib": Entry(
            names=("libamdhip64.so", "libamdhip64.so.6", "librocblas.so.4", "libfoo.so")
        ),
        "/usr/lib": Entry(names=("libc.so.6", "libhipster.so")),
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
