"""The environment that trains: named, active, local, on PATH; asked only where it is a script."""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocsteady.doctor.machine.python_env import PythonEnv, find_python, torch_folder
from rocsteady.doctor.machine.recording import RecordedPath
from rocsteady.doctor.machine.view import View
from rocsteady.system.disk_root import DiskRoot
from tests.doctor.machine.recorded_files import Files, view_of

ELF = RecordedPath(pieces={"0": base64.b64encode(b"\x7fE").decode()})
SCRIPT = RecordedPath(pieces={"0": base64.b64encode(b"#!").decode()})


def view(
    files: Files,
    *,
    platform: str = "linux",
    python: str | None = None,
    own_prefix: str = "",
    **environment: str,
) -> View:
    folder = "C:/work" if platform == "win32" else "/work"
    more = {"folder": folder, "environment": environment, "own_prefix": own_prefix}
    return view_of(files, platform=platform, python=python, **more)


def venv(prefix: str, *, settings: str = "version = 3.12.1\n", python: str = "3.12") -> Files:
    return {
        f"{prefix}/pyvenv.cfg": settings,
        f"{prefix}/bin/python": RecordedPath(link="/usr/bin/python3.12"),
        "/usr/bin/python3.12": ELF,
        f"{prefix}/lib/python{python}/site-packages": RecordedPath(names=()),
    }


def env(prefix: str, chosen: str, version: str = "3.12.1", python: str = "3.12") -> PythonEnv:
    return PythonEnv(
        prefix=prefix,
        chosen=chosen,
        version=version,
        site_packages=(f"{prefix}/lib/python{python}/site-packages",),
    )


def debian(version: str = "3.11") -> Files:
    return {
        "/usr/bin/python3": RecordedPath(link=f"python{version}"),
        f"/usr/bin/python{version}": ELF,
        "/usr/lib/python3/dist-packages": RecordedPath(names=()),
        f"/usr/lib/python{version}": RecordedPath(names=()),
        f"/usr/local/lib/python{version}/dist-packages": RecordedPath(names=()),
    }


def test_no_python_is_an_answer() -> None:
    assert find_python(view({})) is None


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_active_environment_is_taken(variable: str) -> None:
    files = venv("/venv") | venv("/work/.venv") | debian()

    found = find_python(view(files, PATH="/usr/bin", **{variable: "/venv/"}))

    assert found == env("/venv", variable)


def test_a_virtual_environment_goes_before_the_conda_it_was_made_in() -> None:
    found = find_python(view(venv("/venv"), CONDA_PREFIX="/conda", VIRTUAL_ENV="/venv"))

    assert found == env("/venv", "VIRTUAL_ENV")


def test_conda_says_its_version_by_its_folders() -> None:
    files: Files = {"/conda/lib/python3.10/site-packages": RecordedPath(names=())}

    assert find_python(view(files, CONDA_PREFIX="/conda")) == env(
        "/conda", "CONDA_PREFIX", "3.10", "3.10"
    )


def test_then_the_one_in_the_working_folder() -> None:
    files = venv("/work/.venv") | debian()

    assert find_python(view(files, PATH="/usr/bin")) == env("/work/.venv", "./.venv")


def test_then_the_first_on_the_path() -> None:
    files = venv("/venv") | debian()

    assert find_python(view(files, PATH="/nowhere:/venv/bin:/usr/bin")) == env("/venv", "PATH")


def test_debian_keeps_its_packages_in_places_of_its_own() -> None:
    assert find_python(view(debian(), PATH="/usr/bin")) == PythonEnv(
        prefix="/usr",
        chosen="PATH",
        version="3.11",
        site_packages=("/usr/local/lib/python3.11/dist-packages", "/usr/lib/python3/dist-packages"),
    )


def test_the_users_own_packages_go_before_those_of_the_system() -> None:
    own = "/home/alice/.local/lib/python3.11/site-packages"
    files = debian() | {own: RecordedPath(names=())}

    found = find_python(view(files, PATH="/usr/bin", HOME="/home/alice"))
    without = find_python(view(files, PATH="/usr/bin", HOME="/home/alice", PYTHONNOUSERSITE="1"))
    moved = find_python(view(files, PATH="/usr/bin", PYTHONUSERBASE="/home/alice/.local"))

    assert found is not None
    assert found.site_packages[:2] == (own, "/usr/local/lib/python3.11/dist-packages")
    assert without is not None
    assert own not in without.site_packages
    assert moved == found


def test_the_users_own_packages_are_closed_off_from_a_virtual_environment() -> None:
    own: Files = {"/home/alice/.local/lib/python3.12/site-packages": RecordedPath(names=())}

    found = find_python(view(venv("/venv") | own, VIRTUAL_ENV="/venv", HOME="/home/alice"))

    assert found == env("/venv", "VIRTUAL_ENV")


def test_an_environment_with_system_packages_looks_there_last() -> None:
    own = "/home/alice/.local/lib/python3.11/site-packages"
    cfg = "home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.2\n"
    files = venv("/venv", settings=cfg, python="3.11") | debian() | {own: RecordedPath(names=())}

    assert find_python(view(files, VIRTUAL_ENV="/venv", HOME="/home/alice")) == PythonEnv(
        prefix="/venv",
        chosen="VIRTUAL_ENV",
        version="3.11.2",
        site_packages=(
            "/venv/lib/python3.11/site-packages",
            own,
            "/usr/local/lib/python3.11/dist-packages",
            "/usr/lib/python3/dist-packages",
        ),
    )


def test_uv_writes_the_version_under_another_name() -> None:
    cfg = "home = /opt/uv/bin\nimplementation = CPython\nuv = 0.9.0\nversion_info = 3.12.3\n"

    found = find_python(view(venv("/venv", settings=cfg), VIRTUAL_ENV="/venv"))

    assert found == env("/venv", "VIRTUAL_ENV", "3.12.3")


def test_fedora_links_lib64_or_fills_it_and_both_are_said_once() -> None:
    linked = venv("/venv") | {"/venv/lib64": RecordedPath(link="lib")}
    filled: Files = {
        "/usr/bin/python3": ELF,
        "/usr/lib/python3.13/site-packages": RecordedPath(names=()),
        "/usr/lib64/python3.13/site-packages": RecordedPath(names=()),
        "/usr/local/lib64/python3.13/site-packages": RecordedPath(names=()),
    }

    assert find_python(view(linked, VIRTUAL_ENV="/venv")) == env("/venv", "VIRTUAL_ENV")
    found = find_python(view(filled, PATH="/usr/bin"))
    assert found is not None
    assert found.site_packages == (
        "/usr/lib/python3.13/site-packages",
        "/usr/lib64/python3.13/site-packages",
        "/usr/local/lib64/python3.13/site-packages",
    )


def test_the_one_that_was_named_goes_before_all() -> None:
    files = venv("/venv") | venv("/other")

    found = find_python(view(files, python="/other/bin/python", VIRTUAL_ENV="/venv"))

    assert found == env("/other", "--python")


def test_our_own_environment_on_the_path_is_passed_over() -> None:
    files = venv("/ours") | venv("/venv")

    found = find_python(view(files, own_prefix="/ours", PATH="/ours/bin:/venv/bin"))

    assert found == env("/venv", "PATH")


def test_our_own_environment_is_taken_if_it_holds_torch() -> None:
    files = venv("/ours") | venv("/venv")
    files["/ours/lib/python3.12/site-packages/torch/version.py"] = ""

    found = find_python(view(files, own_prefix="/ours", PATH="/ours/bin:/venv/bin"))

    assert found == env("/ours", "PATH")


def test_an_environment_without_packages_says_why_it_was_not_examined() -> None:
    assert find_python(view({}, VIRTUAL_ENV="/gone")) == PythonEnv(
        prefix="/gone",
        chosen="VIRTUAL_ENV",
        version="",
        site_packages=(),
        why_not="it has no package folder",
    )


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        (
            {"C:/venv/pyvenv.cfg": "version = 3.12.1\n"},
            {"VIRTUAL_ENV": "C:\\venv"},
            ("C:/venv", "VIRTUAL_ENV", "3.12.1"),
        ),
        (
            {"C:/venv/pyvenv.cfg": "version = 3.12.1\n", "C:/venv/Scripts/python.exe": ELF},
            {"PATH": "C:\\Windows;C:\\venv\\Scripts"},
            ("C:/venv", "PATH", "3.12.1"),
        ),
        ({"C:/venv/python.exe": ELF}, {"PATH": "C:\\venv"}, ("C:/venv", "PATH", "")),
    ],
    ids=["active", "in Scripts", "beside Lib"],
)
def test_windows_has_a_layout_of_its_own(
    files: Files, environment: dict[str, str], expected: tuple[str, str, str]
) -> None:
    site = "C:/venv/Lib/site-packages"
    prefix, chosen, version = expected

    found = find_python(
        view(files | {site: RecordedPath(names=())}, platform="win32", **environment)
    )

    assert found == PythonEnv(prefix=prefix, chosen=chosen, version=version, site_packages=(site,))


@pytest.mark.parametrize(
    "said",
    [["/venv", "/shims/python3", "3.12.1", "linux"], ["/usr", "/venv/bin/python", "3.12.1", ""]],
    ids=["by its prefix", "by its place"],
)
def test_a_script_leads_to_where_it_said_that_python_lives(said: list[str]) -> None:
    files = venv("/venv") | {
        "/shims/python3": RecordedPath(pieces=SCRIPT.pieces, answer=json.dumps(said))
    }

    assert find_python(view(files, PATH="/shims")) == env("/venv", "PATH")


@pytest.mark.parametrize(
    "said", ["", "garbage", "[]", "7", "[1, 2, 3]", "[" * 100_000, '{"a": 1}', "[1e999, 1, 1]"]
)
def test_a_script_that_answers_nonsense_was_not_examined(said: str) -> None:
    files: Files = {"/shims/python3": RecordedPath(pieces=SCRIPT.pieces, answer=said)}

    assert find_python(view(files, PATH="/shims")) == PythonEnv(
        prefix="/shims/python3",
        chosen="PATH",
        version="",
        site_packages=(),
        why_not="it is a script that did not report in time where Python is installed",
    )


def test_a_script_that_names_a_place_that_cannot_be_written_down_is_survived() -> None:
    files: Files = {
        "/shims/python3": RecordedPath(
            pieces=SCRIPT.pieces, answer='["/\\ud800", "", "3\\udcff", ""]'
        )
    }

    found = find_python(view(files, PATH="/shims"))

    assert found is not None
    assert (found.prefix, found.version) == ("/?", "3?")


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "python3"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_real_shim_is_asked_and_leads_to_the_real_interpreter(tmp_path: Path) -> None:
    shim = script(tmp_path, f'exec {sys.executable} "$@"')

    found = find_python(View(DiskRoot(python=shim)))

    assert found is not None
    assert found.prefix == sys.prefix
    assert found.version.startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert found.why_not == ""


@pytest.mark.parametrize(
    "text",
    ["trap '' TERM; while :; do sleep 60; done", "exit 3", "echo no"],
    ids=["hangs", "fails", "says something else"],
)
def test_a_real_shim_that_does_not_say_costs_half_a_second(tmp_path: Path, text: str) -> None:
    shim = script(tmp_path, text)
    began = time.monotonic()

    found = find_python(View(DiskRoot(python=shim)))

    assert time.monotonic() - began < 1.0
    assert found == PythonEnv(
        prefix=shim,
        chosen="--python",
        version="",
        site_packages=(),
        why_not="it is a script that did not report in time where Python is installed",
    )


def test_a_shim_in_a_copied_folder_is_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script(tmp_path, f"touch {ran}")

    found = find_python(View(DiskRoot(tmp_path, python="/python3")))

    assert found is not None
    assert found.why_not
    assert not ran.exists()


def test_a_torch_built_in_a_folder_of_its_own_is_found_by_its_link() -> None:
    site = "/work/.venv/lib/python3.12/site-packages"
    text = "import site_hook\n# a comment\nrelative\n/src/missing\n/src/pytorch\n"
    files: Files = {
        **venv("/work/.venv"),
        site: RecordedPath(names=("__editable__.torch.pth",)),
        f"{site}/__editable__.torch.pth": text,
        "/src/pytorch/torch/version.py": "",
    }

    found = find_python(here := view(files))

    assert found is not None
    assert found.site_packages == (site, "/src/pytorch")
    assert torch_folder(here, found) == "/src/pytorch/torch"


def test_the_folder_of_torch_is_the_first_that_python_would_look_into() -> None:
    files: Files = {"/b/torch/version.py": "", "/c/torch/version.py": "", "/a/torch/x": ""}
    python = PythonEnv(prefix="/", chosen="PATH", version="", site_packages=("/a", "/b", "/c"))

    assert torch_folder(view(files), python) == "/b/torch"
    assert torch_folder(view({}), python) is None


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    cfg=st.text(max_size=80)
    | st.from_regex(r"(home|version|include-system-site-packages) ?=.{0,20}\n"),
    prefix=st.text(max_size=12),
    said=st.text(max_size=40) | st.lists(st.text(max_size=5), max_size=5).map(json.dumps),
)
def test_no_environment_is_too_strange(cfg: str, prefix: str, said: str) -> None:
    files = venv("/venv", settings=cfg)
    files["/shims/python3"] = RecordedPath(pieces=SCRIPT.pieces, answer=said)

    for environment in ({"VIRTUAL_ENV": "/venv"}, {"VIRTUAL_ENV": prefix}, {"PATH": "/shims"}):
        found = find_python(view(files, **environment))
        assert found is None or isinstance(found.site_packages, tuple)
