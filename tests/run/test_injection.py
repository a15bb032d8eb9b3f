"""What is laid out for an attempt: on a tmpfs, private, and first on PYTHONPATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from rocsteady_train.inside import wire

from rocsteady import __version__
from rocsteady.errors import RocsteadyError
from rocsteady.run.attempt import injection
from rocsteady.run.attempt.injection import (
    Injection,
    claim,
    find_pages,
    lay_out,
    private_folder,
    runtime_folders,
    sweep,
)
from rocsteady.system import mounted_drives

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes are of POSIX")
DISK = "/dev/vda1 / ext4 rw 0 0\n"


def mounted(folder: Path, *tmpfs: Path) -> Path:
    """Write what the kernel says is mounted where."""
    places = "".join(
        f"tmpfs {str(place).replace(' ', chr(92) + '040')} tmpfs rw 0 0\n" for place in tmpfs
    )
    (folder / "mounts").write_text(DISK + places)
    return folder / "mounts"


def test_lays_out_one_package_and_sitecustomize_for_their_owner_only(tmp_path: Path) -> None:
    injection = lay_out(tmp_path)

    assert injection == Injection(site=tmp_path / "site", pages=tmp_path / "pages")
    assert {path.name for path in injection.site.iterdir()} == {
        "_rocsteady_inside",
        f"rocsteady-{__version__}.dist-info",
        "sitecustomize.py",
    }
    package = injection.site / "_rocsteady_inside"
    inside = Path(wire.__file__).parent
    sources = {path.relative_to(inside) for path in inside.rglob("*.py")}
    laid_out = {path.relative_to(package) for path in package.rglob("*.py")}
    not_needed = {path for path in sources if path.parts[0] in ("payloads", "sitecustomize.py")}
    rendezvous = {Path("torchrun.py")}
    assert laid_out == sources - not_needed | rendezvous
    assert Path("heartbeat/hooks.py") in laid_out
    folders = [path for path in package.rglob("*") if path.is_dir()]
    for path in (injection.site, package, injection.pages, *folders):
        assert path.stat().st_mode & 0o777 == 0o700
    assert {(package / path).stat().st_mode & 0o777 for path in laid_out} == {0o600}


def test_lays_out_again_with_no_page_of_before(tmp_path: Path) -> None:
    (lay_out(tmp_path).pages / "7.page").write_bytes(b"old")

    assert list(lay_out(tmp_path).pages.iterdir()) == []


@pytest.mark.parametrize(
    ("existing", "path"),
    [
        ({}, "/r/site"),
        ({"PYTHONPATH": ""}, "/r/site"),
        ({"PYTHONPATH": "a:b"}, "/r/site:a:b"),
    ],
)
def test_comes_before_the_users_own_pythonpath(existing: dict[str, str], path: str) -> None:
    injection = Injection(site=Path("/r/site"), pages=Path("/r/pages"))

    assert injection.environment(existing, run_id="run-1", supervisor=42) == {
        "PYTHONPATH": path,
        wire.PAGES: "/r/pages",
        wire.RUN: "run-1",
        wire.SUPERVISOR: "42",
    }


def folders(environment: dict[str, str], memory: Path, mounts: Path) -> list[Path]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(injection, "SHARED_MEMORY", memory)
        patched.setattr(mounted_drives, "MOUNTS", mounts)
        return [folder.parent for folder in runtime_folders("a", environment)]


def test_prefers_the_users_own_runtime_folder(tmp_path: Path) -> None:
    told = tmp_path / "run user"
    told.mkdir()
    environment = {"XDG_RUNTIME_DIR": str(told), "TMPDIR": "/t"}

    found = folders(environment, tmp_path, mounted(tmp_path, tmp_path, told))

    assert found == [told, tmp_path, Path("/t")]
    assert private_folder(told / "a").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("told", ["", "relative", "/does/not/exist", "/"])
def test_falls_back_to_shared_memory(tmp_path: Path, told: str) -> None:
    environment = {"XDG_RUNTIME_DIR": told, "TMPDIR": "/t"}

    assert folders(environment, tmp_path, mounted(tmp_path, tmp_path)) == [tmp_path, Path("/t")]


def test_a_disk_is_the_last_resort_and_that_of_temporary_files(tmp_path: Path) -> None:
    assert folders({"TMPDIR": "/t"}, tmp_path, mounted(tmp_path)) == [Path("/t")]


def test_finds_the_folder_of_the_same_run_again(tmp_path: Path) -> None:
    assert private_folder(tmp_path / "a") == private_folder(tmp_path / "a")


def test_what_somebody_else_has_put_in_its_place_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rocsteady-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "rocsteady-file").touch()
    (tmp_path / "rocsteady-theirs").mkdir(mode=0o700)
    own = injection._is_own
    monkeypatch.setattr(
        injection, "_is_own", lambda folder: folder.name != "rocsteady-theirs" and own(folder)
    )

    for name in ("link", "file", "theirs"):
        made = private_folder(tmp_path / f"rocsteady-{name}")
        assert made.parent == tmp_path
        assert made.name.startswith(f"rocsteady-{name}~")
        assert made.stat().st_mode & 0o777 == 0o700
        assert find_pages(name, {"XDG_RUNTIME_DIR": str(tmp_path)}) == made / "pages"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_refuses_a_folder_that_others_can_enter(tmp_path: Path) -> None:
    (tmp_path / "rocsteady-open").mkdir()
    (tmp_path / "rocsteady-open").chmod(0o755)

    with pytest.raises(RocsteadyError, match="accessible to other users"):
        private_folder(tmp_path / "rocsteady-open")


@pytest.mark.parametrize("run_id", ["", "../a", "a/b", "-a", "a b", "a" * 101, "a\n"])
def test_refuses_a_name_that_is_no_file_name(run_id: str) -> None:
    with pytest.raises(RocsteadyError, match="valid run name"):
        runtime_folders(run_id, os.environ)


def test_what_a_dead_supervisor_left_is_swept_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: dict[str, bool | None] = {"dead": False, "living": True, "elsewhere": None}
    for owner in (*alive, "nobody"):
        folder = tmp_path / f"rocsteady-{owner}"
        folder.mkdir(mode=0o700)
        if owner in alive:
            claim(folder, owner)
    (tmp_path / "rocsteady-link").symlink_to(tmp_path / "rocsteady-dead")

    monkeypatch.setattr(injection, "SHARED_MEMORY", tmp_path)

    sweep({"TMPDIR": "/t"}, alive.__getitem__)

    left = {path.name.removeprefix("rocsteady-") for path in tmp_path.iterdir()}
    assert left == {"living", "elsewhere", "nobody", "link"}
