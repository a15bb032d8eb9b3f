"""A drill's script sees its folder, and whatever it writes, the folder stays as it is."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocsteady.errors import RocsteadyError
from rocsteady.probe import folders, scratch
from rocsteady.probe.folders import (
    copy_project,
    differences,
    moved,
    read_folder_tree,
    read_to_compare,
)
from rocsteady.probe.sandbox_run import job_in, offline, where
from rocsteady.probe.scratch import Scratch, make_scratch, outside, remove
from rocsteady.run.job.values import DoneWhen, Job, Resume, WantedFile

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and shells of POSIX")

WRITES = """
echo new > new.txt; echo more >> code.py; rm -f data/old.txt; mkdir -p out; echo 1 > out/model.pt
echo x > linked/x.txt 2> /dev/null; echo y > {project}/absolute.txt; cat linked/there.txt single.txt
"""


def hashed(*folders: Path) -> str:
    """Return a hash of everything below these folders."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        digest.update(os.fsencode(path))
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a folder with code, data, an environment, and links that lead out of it."""
    folder, elsewhere = tmp_path / "a project, with: signs", tmp_path / "elsewhere"
    for made in (folder / "data", folder / ".venv" / "bin", folder / ".git", elsewhere):
        made.mkdir(parents=True)
    (folder / "code.py").write_text("print(1)\n")
    (folder / "data" / "old.txt").write_text("old")
    (folder / "data" / "within").symlink_to("old.txt")
    (folder / ".venv" / "pyvenv.cfg").write_text("home = /usr")
    (folder / ".git" / "HEAD").write_text("ref")
    (elsewhere / "there.txt").write_text("there\n")
    (elsewhere / "single.txt").write_text("single\n")
    (folder / "linked").symlink_to(elsewhere)
    (folder / "single.txt").symlink_to(elsewhere / "single.txt")
    return folder


def overlaid(project: Path, root: Path) -> Scratch:
    root.mkdir()
    made = make_scratch(
        project, root, read_folder_tree(project), environment=os.environ, without=()
    )
    if made.is_copy:
        pytest.skip("this kernel lets nobody lay files over a folder here")
    return made


def ran(made: Scratch, *command: str) -> str:
    folder = made.folder if made.is_copy else Path("/")
    done = subprocess.run(
        made.command(command), capture_output=True, check=False, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_written_over_a_folder_is_found_elsewhere(project: Path, tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    before, tree = hashed(project, elsewhere), read_folder_tree(project)
    made = overlaid(project, root)

    writes = WRITES.format(project=f"'{project}'")
    ran(made, "sh", "-c", writes)
    out = ran(made, "sh", "-c", writes)  # as the next attempt would

    assert out == "there\nsingle\n"
    assert hashed(project, elsewhere) == before
    assert differences(tree, read_folder_tree(project)) == ()
    assert (made.folder / "new.txt").read_text() == "new\n"
    assert (made.folder / "code.py").read_text() == "print(1)\nmore\nmore\n"
    assert (made.folder / "out" / "model.pt").read_text() == "1\n"
    assert (made.folder / "absolute.txt").read_text() == "y\n"
    assert (made.folder / "linked" / "x.txt").read_text() == "x\n"
    assert ran(made, "pwd") == f"{project}\n"
    remove(root)
    assert not root.exists()
    assert hashed(project, elsewhere) == before


def test_a_file_behind_a_link_can_only_be_read(project: Path, tmp_path: Path) -> None:
    made = overlaid(project, tmp_path / "root")

    out = ran(made, "sh", "-c", "echo lost > single.txt || echo refused")

    assert out == "refused\n"
    assert (tmp_path / "elsewhere" / "single.txt").read_text() == "single\n"


def test_what_is_mounted_in_the_folder_can_only_be_read(project: Path, tmp_path: Path) -> None:
    mounted = project / "data" / "disk"
    mounted.mkdir()
    if os.system(f"mount -t tmpfs tmpfs '{mounted}'"):  # noqa: S605 - a path of ours
        pytest.skip("needs the right to mount")
    try:
        (mounted / "big.bin").write_text("big\n")
        made = overlaid(project, tmp_path / "root")
        out = ran(made, "sh", "-c", "cat data/disk/big.bin; echo x > data/disk/y || echo refused")
    finally:
        os.system(f"umount '{mounted}'")  # noqa: S605 - the same

    assert out == "big\nrefused\n"


def test_a_command_that_there_is_not_ends_as_in_a_shell(project: Path, tmp_path: Path) -> None:
    made = overlaid(project, tmp_path / "root")

    done = subprocess.run(made.command(("no-such-program",)), capture_output=True, check=False)

    assert (done.returncode, done.stderr[:28]) == (127, b"rocsteady: no-such-program: ")


def copy_of(
    project: Path, root: Path, monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...] = ()
) -> Scratch:
    """Make a copy, as where nothing may be mounted."""
    monkeypatch.setattr(scratch, "_started", lambda *_, **__: ("false",))
    root.mkdir()
    tree = read_folder_tree(project)
    return make_scratch(project, root, tree, environment=os.environ, without=without)


def test_where_nothing_can_be_laid_over_it_the_folder_is_copied(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    before = hashed(project, elsewhere)
    made = copy_of(project, root, monkeypatch, without=("data/old.txt",))

    assert not (made.folder / "data" / "old.txt").exists()
    assert not (made.folder / ".git").exists()
    assert (made.folder / ".venv").readlink() == project / ".venv"
    assert (made.folder / "data" / "within").readlink() == made.folder / "data" / "old.txt"
    assert not (made.folder / "linked").is_symlink()
    (made.folder / "data" / "old.txt").write_text("again")
    assert ran(made, "cat", "data/within", "linked/there.txt", "single.txt") == (
        "againthere\nsingle\n"
    )
    ran(made, "sh", "-c", WRITES.format(project="."))
    ran(made, "sh", "-c", 'echo z > "$1"', "sh", str(project / "given.txt"))
    assert (made.folder / "given.txt").read_text() == "z\n"
    assert hashed(project, elsewhere) == before


def test_a_kernel_that_forbids_it_is_found_out_by_trying(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_started", lambda *_, **__: ("false",))
    root = tmp_path / "root"
    root.mkdir()

    made = make_scratch(
        project, root, read_folder_tree(project), environment=os.environ, without=()
    )

    assert made.is_copy
    assert made.command(("sh", "train.sh"))[-2:] == ("sh", "train.sh")


def test_a_copy_that_is_too_large_is_refused_with_the_largest_files(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_COPIED_BYTES", 10)
    monkeypatch.setattr(folders, "clone", lambda _source, _target: False)
    (project / "data" / "train.bin").write_bytes(b"x" * (2 << 20))

    with pytest.raises(RocsteadyError, match=r"2 MiB would have .* data/train\.bin \(2 MiB\)"):
        copy_project(project, tmp_path / "copy", read_folder_tree(project), ())


def test_a_disk_is_not_filled_by_a_copy(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "RESERVE", 1 << 60)
    monkeypatch.setattr(folders, "clone", lambda _source, _target: False)

    with pytest.raises(RocsteadyError, match="but only 0 B can be: "):
        copy_project(project, tmp_path / "copy", read_folder_tree(project), ())


def test_blocks_are_shared_where_the_file_system_can(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real sharing needs Btrfs or XFS; here a file system that can is one that copies at once."""
    monkeypatch.setattr(folders, "MAX_COPIED_BYTES", 0)
    monkeypatch.setattr(folders, "clone", _cloning)

    copy_project(project, tmp_path / "copy", read_folder_tree(project), ())

    assert (tmp_path / "copy" / "code.py").read_text() == "print(1)\n"
    assert (tmp_path / "copy" / "linked" / "there.txt").read_text() == "there\n"


def _cloning(source: Path, target: Path) -> bool:
    shutil.copyfile(source, target)
    return True


def test_a_file_system_that_cannot_share_blocks_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    from rocsteady.probe.folders import clone  # noqa: PLC0415 - of one system only

    source, target = tmp_path / "source", Path("/dev/shm") / f"clone-{os.getpid()}"
    source.write_text("x")

    assert not clone(source, target)  # never between two file systems
    assert not target.exists()


@pytest.mark.parametrize(
    ("word", "becomes"),
    [
        ("train.py", "train.py"),
        ("--lr=0.1", "--lr=0.1"),
        ("/p/out", "/c/out"),
        ("--out=/p/out", "--out=/c/out"),
        ("../p/out", "/c/out"),
        ("../data", "/data"),
        ("/elsewhere", "/elsewhere"),
        ("/p", "/c"),
        ("/project", "/project"),
    ],
)
def test_paths_into_the_folder_lead_into_its_copy(word: str, becomes: str) -> None:
    assert moved(word, Path("/p"), Path("/c")) == becomes


def test_files_of_a_job_are_looked_for_where_they_are_written() -> None:
    made = Scratch(project=Path("/p"), folder=Path("/w"), before=("x",))
    job = Job(
        command=("python",),
        resume=Resume(arguments=("{checkpoint}",), checkpoints=("out/*.pt", "/p/k/*.pt", "/e/*")),
        done_when=DoneWhen(files=(WantedFile(path="/p/model.pt"),)),
    )

    there = job_in(made, job)

    assert there.resume is not None
    assert there.resume.checkpoints == ("out/*.pt", "/w/k/*.pt", "/e/*")
    assert there.done_when.files == (WantedFile(path="/w/model.pt"),)


def test_paths_outside_that_may_be_written_to_are_found(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    out = str(tmp_path / "out")
    command = (
        "/usr/bin/python3",
        str(tmp_path / "train.py"),
        "--output",
        out,
        f"--log={tmp_path}/log",
        "../data",
        str(project / "inside"),
        "/dev/null",
        "relative",
        "--flag",
        out,
    )

    assert outside(command, project) == (out, f"{tmp_path}/log", "../data")


@pytest.mark.parametrize(
    "word",
    [
        *(
            "out.path={}",
            "+hydra.run.dir={}",
            "-o{}",
            "--paths=a:{}",
            "--data=x,{}",
            "--x=s3://b,{}",
        ),
        *(
            "file://{}",
            "sqlite:///{}",
            "@{}",
            "[{}]",
            "local:{}",
            '{{"out": "{}"}}',
            "cp('m', '{}')",
        ),
        *("--data={inside}/a,{}", "echo 1 >{}", "-I../out", "-x~/out", "a:../out", "a=b/../../out"),
        *("--data=https://host/set,{}", "hf:user/set:{}", "make -C {}"),
    ],
)
def test_a_path_outside_is_found_wherever_it_begins_in_an_argument(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, out = tmp_path / "my project", tmp_path / "out"
    project.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))

    found = outside(("python3", word.format(out, inside=project)), project)

    assert [os.path.realpath(project / os.path.expanduser(path)) for path in found] == [str(out)]  # noqa: PTH111


@pytest.mark.parametrize(
    "word",
    [
        *(
            "--lr=1/3",
            "a/b",
            "--fmt=%d/%m",
            "--fmt=%s{}",
            "2026/11/20",
            "--x=/",
            "--sep=a,/",
            "1 // 2",
        ),
        *("http://host{}", "s3://bucket{}", "--data=hf://user{},gs://b/c", "git+https://h:80{}"),
        *("{{run}}{}", "$RUN{}", "*{}", "--re=a,/no-such-place/", "--range=1..10", "C:/x", "..."),
        *(
            "{inside}/new,more",
            "--data={inside}/a b,{inside}/c",
            "a:{inside}/c",
            "read,{}/train.py",
        ),
    ],
)
def test_what_only_looks_like_a_path_outside_is_not_asked_about(word: str, tmp_path: Path) -> None:
    project = tmp_path / "my project"
    project.mkdir()

    assert outside(("python3", word.format(tmp_path, inside=project)), project) == ()


CHANGES: list[Callable[[Path], object]] = [
    lambda folder: (folder / "new").touch(),
    lambda folder: (folder / "code.py").unlink(),
    lambda folder: (folder / "code.py").write_text("print(2)\n"),
    lambda folder: (folder / "code.py").chmod(0o600),
    lambda folder: (
        shutil.copy2(folder / "code.py", folder / "k")
        and (folder / "k").replace(folder / "code.py")
    ),
    lambda folder: (folder / "data").rename(folder / "other"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_folder_is_seen(change: Callable[[Path], object], project: Path) -> None:
    before = read_folder_tree(project)
    assert differences(before, read_folder_tree(project)) == ()

    change(project)

    assert differences(before, read_folder_tree(project)) != ()


def test_caches_and_what_a_run_keeps_are_passed_over(project: Path) -> None:
    before = read_to_compare(project)
    (project / ".rocsteady").mkdir()
    (project / "data" / "__pycache__").mkdir()
    (project / ".venv" / "bin" / "__pycache__").mkdir()

    after = read_to_compare(project)

    assert after.environments == (".venv",)
    assert differences(before, after) == ()


def test_what_a_script_writes_into_an_environment_that_a_copy_shares_is_seen(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_to_compare(project)
    made = copy_of(project, tmp_path / "root", monkeypatch)

    ran(made, "sh", "-c", "echo x > .venv/bin/x; echo x >> .venv/pyvenv.cfg")

    assert differences(before, read_to_compare(project)) == (".venv/bin/x", ".venv/pyvenv.cfg")
    assert any(".venv" in line and "shared" in line for line in where(made, "trial"))


def test_a_folder_with_another_file_of_that_name_is_no_environment(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "data" / "pyvenv.cfg").touch()
    made = copy_of(project, tmp_path / "root", monkeypatch)

    ran(made, "sh", "-c", "echo x >> data/old.txt")

    assert (project / "data" / "old.txt").read_text() == "old"


def test_more_than_can_be_compared_is_not_called_unchanged(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(read_folder_tree(project).entries)
    for number in range(count + 1):
        (project / ".venv" / f"{number}").mkdir()
    monkeypatch.setattr(folders, "MAX_ENTRIES", count + 1)
    tree = read_to_compare(project)

    assert tree.whole
    assert differences(tree, tree) is None


def test_the_settings_of_an_environment_name_its_own_folder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyvenv.cfg").write_text(f"command = python -m venv {project}\n")

    assert copy_of(project, tmp_path / "root", monkeypatch).is_copy


def test_trackers_keep_it_to_themselves(tmp_path: Path) -> None:
    told = {"HF_TOKEN": "secret", "HOME": "/home/me", "WANDB_MODE": "online"}

    environment = offline(told, tmp_path)

    assert "HF_TOKEN" not in environment
    assert environment["HOME"] == "/home/me"
    assert environment["WANDB_MODE"] == "offline"
    assert environment["MLFLOW_TRACKING_URI"] == (tmp_path / "mlruns").as_uri()


def test_what_the_kernel_closed_is_opened_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = [tmp_path / "all" / name for name in ("w-work/work", "trial/w-work/work")]
    for each in closed:
        each.mkdir(parents=True)
        each.chmod(0o000)
    modes: list[int] = []
    monkeypatch.setattr(
        shutil, "rmtree", lambda _: modes.extend(it.stat().st_mode for it in closed)
    )

    remove(tmp_path / "all")

    assert [oct(mode & 0o777) for mode in modes] == ["0o700", "0o700"]
