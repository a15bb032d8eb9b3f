"""Whatever a script does with paths, a drill, a plan and an init leave the user's folder alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from in_process import count
from supervised import Project, until

from rocsteady.sandbox import scratch
from rocsteady.sandbox.folder_tree import differences, read_folder_tree
from rocsteady.sandbox.redirect import LeadsBackError, Redirection
from rocsteady.sandbox.scratch import Method, Scratch, make_scratch, remove
from rocsteady.workflows.sandbox_run import where

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="mounts and links of POSIX")

# Every way in which a script can come by the path of its folder before it starts.
SCRIPT = """
import json, os, pathlib, sys
for place in (
    "{project}/from-script",
    pathlib.Path("config.yaml").read_text().split()[1],
    json.loads(pathlib.Path("deep/config.json").read_text())["out"],
    os.environ["OUT"],
    os.environ["BOTH"].split(":")[1],
    os.path.expanduser("~/project/from-home"),
    sys.argv[1],
    sys.argv[2].partition("=")[2],
    sys.argv[3].partition(",out=")[2],
    "{project.parent}/other/../project/from-dots",
    "{project.parent}/link/from-link",
    "{project.parent}/deep-link/../from-deep",
    "/proc/self/root{project}/from-proc",
    "~/other/../project/from-tilde".replace("~", os.environ["HOME"]),
):
    pathlib.Path(place).write_text("x")
"""
WRITTEN = [
    *("script", "yaml", "json", "variable", "second", "home", "word", "option", "inner"),
    *("dots", "link", "deep", "proc", "tilde"),
]
NO_MOUNTS = """
import sys
from rocsteady.sandbox import scratch
scratch._started = lambda *_, **__: ("false",)  # as where nothing may be mounted
from rocsteady.cli.main import main
sys.argv = ["rocsteady", *sys.argv[1:]]
main()
"""
NO_LANDLOCK = """from rocsteady.sandbox import scratch
scratch._closed = lambda *_: ()
from"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "deep").mkdir(parents=True)
    (project / "train.py").write_text(SCRIPT.format(project=project))
    (project / "config.yaml").write_text(f"out: {project}/from-yaml\n")
    (project / "deep" / "config.json").write_text(f'{{"out": "{project}/from-json"}}\n')
    (project / "checkpoints").mkdir()
    (project / "checkpoints" / "1.pt").write_bytes(b"\0weights")
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(project)
    (tmp_path / "deep-link").symlink_to(project / "deep")
    return project


def made_for(project: Path, root: Path, environment: dict[str, str]) -> Scratch:
    root.mkdir()
    return make_scratch(
        project, root, read_folder_tree(project), environment=environment, without=()
    )


def variables(project: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HOME": str(project.parent),
        "OUT": f"{project}/from-variable",
        "BOTH": f"/nowhere:{project}/from-second",
    }


@pytest.mark.parametrize("wanted", [Method.OVERLAY, Method.BIND, Method.COPY])
def test_no_absolute_path_leads_into_the_real_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Method
) -> None:
    choose(monkeypatch, wanted)
    environment, before = variables(folder), read_folder_tree(folder)
    monkeypatch.setenv("HOME", str(folder.parent))
    made = made_for(folder, tmp_path / "root", environment)
    if made.method is not wanted:
        pytest.skip(f"not possible here: {wanted.value}")
    words = (f"{folder}/from-word", f"--out={folder}/from-option", f"a=1,out={folder}/from-inner")

    done = subprocess.run(
        made.command((sys.executable, "train.py", *words)),
        env=made.environment(environment),
        cwd=made.folder,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    changed = differences(before, read_folder_tree(folder))
    count(f"absolute paths, {wanted.name.lower()}", "tried", len(WRITTEN))
    count(f"absolute paths, {wanted.name.lower()}", "written in the real folder", len(changed))
    assert changed == ()
    written = sorted(path.name for path in made.folder.glob("from-*"))
    assert written == sorted(f"from-{name}" for name in WRITTEN)


@pytest.mark.parametrize(
    "write",
    [
        "open(p + '/put-together', 'w')",
        "open(p + '/train.py', 'a')",
        "os.open(p + '/train.py', os.O_WRONLY | os.O_TRUNC)",
        "os.truncate(p + '/train.py', 0)",
        "os.mkdir(p + '/made')",
        "os.remove(p + '/train.py')",
        "os.rename(p + '/train.py', p + '/renamed.py')",
        "os.rename(p + '/train.py', 'taken.py')",
        "os.rename('config.yaml', p + '/config.yaml')",
        "os.link('config.yaml', p + '/linked')",
        "os.symlink('config.yaml', p + '/linked')",
        "os.link(p + '/train.py', 'mine'); open('mine', 'a').write('x')",
        "os.rename(p, p + '-2')",
        "shutil.rmtree(p)",
        "os.chdir(p); open('relative', 'w')",
        "subprocess.run(['touch', p + '/by-a-child'], check=True)",
        "ctypes.CDLL(None).creat((p + '/by-c').encode(), 0o600) >= 0 or os.abort()",
    ],
)
def test_a_path_that_a_script_puts_together_changes_nothing_beside_a_copy(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    choose(monkeypatch, Method.COPY)
    made = made_for(folder, tmp_path / "root", dict(os.environ))
    if not made.is_closed:
        pytest.skip("this kernel has no Landlock")
    before = read_folder_tree(folder)
    parts = ", ".join(map(repr, folder.parts))
    code = f"import ctypes, os, shutil, subprocess; p = os.path.join({parts}); {write}"
    command = made.command((sys.executable, "-c", code))

    done = subprocess.run(command, cwd=made.folder, check=False, capture_output=True, text=True)

    changed = differences(before, read_folder_tree(folder))
    count("paths put together by a script, copy", "tried")
    count("paths put together by a script, copy", "written in the real folder", len(changed))
    assert changed == ()
    assert done.returncode != 0


def test_a_script_beside_a_closed_folder_can_do_everything_else(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, Method.COPY)
    made = made_for(folder, tmp_path / "root", dict(os.environ))
    code = """
import multiprocessing, os, pathlib, shutil, socket, tempfile
with tempfile.TemporaryFile() as file:
    file.write(b"x")
pathlib.Path("out").mkdir()
pathlib.Path("out/a").write_text("a")
os.rename("out/a", "deep/a")
os.rename("checkpoints", "old")
open("/dev/null", "w").write("x")
lock = multiprocessing.get_context("spawn").Lock()
socket.socketpair()
print(pathlib.Path(os.path.join({parts}, "config.yaml")).read_text())
"""
    code = code.replace("{parts}", ", ".join(map(repr, folder.parts)))

    done = subprocess.run(
        made.command((sys.executable, "-c", code)), env=made.environment(os.environ),
        cwd=made.folder, check=False, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "out: " in done.stdout


@pytest.mark.parametrize("wanted", [Method.OVERLAY, Method.BIND, Method.COPY])
def test_a_file_with_two_names_is_not_written_through_either(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Method
) -> None:
    choose(monkeypatch, wanted)
    outside = tmp_path / "other" / "data"
    outside.write_text("theirs")
    os.link(outside, folder / "data")
    os.link(folder / "train.py", folder / "deep" / "train.py")
    made = made_for(folder, tmp_path / "root", dict(os.environ))
    if made.method is not wanted:
        pytest.skip(f"not possible here: {wanted.value}")
    before = read_folder_tree(folder)
    code = "for name in ('data', 'train.py', 'deep/train.py'): open(name, 'a').write('x')"

    subprocess.run(made.command((sys.executable, "-c", code)), cwd=made.folder, check=True)

    assert differences(before, read_folder_tree(folder)) == ()
    assert outside.read_text() == "theirs"
    real = {it.inode for _, it in before.files()}
    assert real.isdisjoint(it.inode for _, it in read_folder_tree(made.folder).files())
    (said,) = [line for line in where(made, "drill", before) if "hard link" in line]
    assert said.startswith("rocsteady: data also has a path outside this folder (a hard link)")


@pytest.mark.parametrize("wanted", [Method.OVERLAY, Method.BIND, Method.COPY])
def test_a_folder_that_is_there_can_be_renamed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Method
) -> None:
    choose(monkeypatch, wanted)
    made = made_for(folder, tmp_path / "root", dict(os.environ))
    if made.method is not wanted:
        pytest.skip(f"not possible here: {wanted.value}")
    rename = "import os; os.rename('checkpoints', 'old'); os.mkdir('checkpoints')"

    command = made.command((sys.executable, "-c", rename))
    done = subprocess.run(command, cwd=made.folder, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert (folder / "checkpoints" / "1.pt").exists()
    assert not (folder / "old").exists()
    remove(tmp_path / "root")


@pytest.mark.parametrize("slash", ["\\/", "\\u002f", "\\x2F"])
def test_a_path_that_cannot_be_redirected_is_refused_with_its_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slash: str
) -> None:
    choose(monkeypatch, Method.COPY)
    escaped = str(folder).replace("/", slash)
    (folder / "escaped.json").write_text(f'{{\n"out": "{escaped}\\/x"}}\n')

    with pytest.raises(LeadsBackError, match=r"^escaped\.json:2: an absolute path into"):
        made_for(folder, tmp_path / "root", dict(os.environ))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/b", "/copy"),
        ("/a/b/c", "/copy/c"),
        ("x=/a/b:/a/b/c", "x=/copy:/copy/c"),
        ("'/a/b'", "'/copy'"),
        ("file:///a/b/c", "file:///copy/c"),
        ("~/b/c", "/copy/c"),
        ("$HOME/b/c ${HOME}/b", "/copy/c /copy"),
        ("//a//b/./c /a/./b/c", "/copy/./c /copy/c"),
        ("-o/a/b/c", "-o/copy/c"),
        ("train -o/a/b/c '-o/a/b'", "train -o/copy/c '-o/copy'"),
        ("https://a/b x-o/a/b", "https://a/b x-o/a/b"),
        ("/a/bc /a/b-c /a/b.c /x/a/b https://h/a/b", "/a/bc /a/b-c /a/b.c /x/a/b https://h/a/b"),
    ],
)
def test_only_the_folder_itself_is_redirected(text: str, expected: str) -> None:
    assert Redirection(Path("/a/b"), Path("/copy"), {"HOME": "/a"}).text(text) == expected


def test_what_lies_in_the_root_is_not_taken_for_the_folder_that_one_is_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    text = 'HERE + "/model.pt", "/data", "/proc"'

    assert Redirection(folder, Path("/copy"), dict(os.environ)).text(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/b c/d", "/x/b c/d"),
        ("file:///a/b%20c/d", "file:///x/b%20c/d"),
        ("cd /a/b\\ c/d", "cd /x/b\\ c/d"),
    ],
)
def test_a_folder_with_a_space_in_its_name(text: str, expected: str) -> None:
    assert Redirection(Path("/a/b c"), Path("/x/b c"), {}).text(text) == expected


def test_the_names_that_links_give_a_folder_lead_into_the_copy(tmp_path: Path) -> None:
    """As where /home is a link to /data/home, and the shell went into the folder by a link."""
    project = tmp_path / "data" / "me" / "project"
    project.mkdir(parents=True)
    (tmp_path / "home").symlink_to(tmp_path / "data")
    (tmp_path / "short").symlink_to(project)
    (tmp_path / "other").symlink_to(tmp_path)
    home, short = tmp_path / "home" / "me", tmp_path / "short"
    variables = {"HOME": str(home), "PWD": str(short), "OLDPWD": str(tmp_path / "other")}
    redirection = Redirection(project, Path("/copy"), variables)

    for text in (f"{project}/x", f"{home}/project/x", f"{short}/x", "~/project/x"):
        assert redirection.text(text) == "/copy/x"
    assert redirection.environment(variables) == {**variables, "PWD": "/copy"}


@pytest.mark.slow
def test_a_drill_without_mounts_says_so_and_changes_nothing(
    project: Project, torch_python: str
) -> None:
    project.program = (sys.executable, "-c", NO_MOUNTS)
    out = project.folder / "model.pt"
    project.script(f"""
        import pathlib, torch
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(200):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            pathlib.Path("{out}").write_text(str(step))
    """)

    words = ("drill", "--yes", "--faults", "kill@5", "--", torch_python, "train.py")
    ended = project.say(*words, within=120)

    assert "runs in a copy of this folder" in ended.err
    assert "train.py:8: " in ended.err
    assert ended.code in (0, 1), ended.err
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("plan", "--trial", "1s", "--within", "20s"), ("init", "--seconds", "1")]
)
def test_a_plan_and_an_init_without_mounts_write_nothing_here(
    project: Project, torch_python: str, words: tuple[str, ...]
) -> None:
    project.program = (sys.executable, "-c", NO_MOUNTS)
    here = project.folder
    (here / "config.yaml").write_text(f"out: {here}/from-yaml\n")
    project.environment["OUT"] = f"{here}/from-variable"
    project.script(f"""
        import os, pathlib, sys, time, torch
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        places = ["{here}/from-script", os.environ["OUT"], sys.argv[1]]
        places.append(pathlib.Path("config.yaml").read_text().split()[1])
        places.append(os.path.join(os.sep, *{here.parts[1:]!r}, "put-together"))
        for step in range(500):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            time.sleep(0.01)
            for place in places:
                try:
                    pathlib.Path(place).write_text("x")
                except PermissionError:
                    print("refused", place)
    """)
    before = read_folder_tree(here)

    word = f"{here}/from-word"
    ended = project.say(*words, "--yes", "--", torch_python, "train.py", word, within=180)

    changed = set(differences(before, read_folder_tree(here))) - {"rocsteady.toml"}
    count(f"rocsteady {words[0]} in a copy, absolute paths", "tried", 5)
    count(f"rocsteady {words[0]} in a copy, absolute paths", "written here", len(changed))
    assert ended.code == 0, ended.err
    assert "runs in a copy of this folder" in ended.err
    closed = "the original folder is read-only for the script (Landlock)" in ended.err
    assert changed == (set() if closed else {"put-together"})


@pytest.mark.parametrize(
    "words", [("drill", "--faults", "kill@5"), ("plan", "--trial", "20s"), ("init",)]
)
def test_what_a_script_changed_here_is_reported_even_if_it_is_stopped(
    project: Project, words: tuple[str, ...]
) -> None:
    """As where there are neither mounts nor Landlock: a hard link to a file of the folder."""
    project.program = (sys.executable, "-c", NO_MOUNTS.replace("from", NO_LANDLOCK, 1))
    (project.folder / "data").write_text("mine")
    project.script(f"""
        import os, time
        os.link(os.path.join(os.sep, *{project.folder.parts[1:]!r}, "data"), "copied")
        open("copied", "a").write("x")
        open({str(project.home / "written")!r}, "w").close()
        time.sleep(600)
    """)

    child = project.popen(*words, "--yes", "--", sys.executable, "train.py")
    until((project.home / "written").exists)
    child.send_signal(signal.SIGINT if words[0] != "drill" else signal.SIGTERM)
    ended = project.ended(child)

    assert ended.code in (130, 143), ended.err
    said = " ".join((ended.out + ended.err).split())
    assert "nothing in this folder was changed" not in said
    assert "hanged in this folder: data" in said or "folder were changed: data" in said


@pytest.mark.slow
@pytest.mark.parametrize("words", [("drill", "--faults", "kill@5"), ("plan",), ("init",)])
def test_what_cannot_be_redirected_ends_with_2(project: Project, words: tuple[str, ...]) -> None:
    project.program = (sys.executable, "-c", NO_MOUNTS)
    project.script("print(1)")
    escaped = str(project.folder).replace("/", "\\/")
    (project.folder / "paths.json").write_text(f'{{"out": "{escaped}"}}')

    ended = project.say(*words, "--yes", "--", sys.executable, "train.py")

    assert ended.code == 2, ended.err
    assert "error: paths.json:1: " in ended.err


def choose(monkeypatch: pytest.MonkeyPatch, wanted: Method) -> None:
    """Forbid what would be tried before."""
    if wanted is Method.COPY:
        monkeypatch.setattr(scratch, "_started", lambda *_, **__: ("false",))
    elif wanted is Method.BIND:
        monkeypatch.setattr(scratch, "_may_overlay", lambda _: False)
