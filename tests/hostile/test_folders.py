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

from rocsteady.probe import scratch
from rocsteady.probe.folders import differences, read_folder_tree
from rocsteady.probe.scratch import AbsolutePathError, Method, Scratch, make_scratch, remove

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
from rocsteady.probe import scratch
scratch._started = lambda *_, **__: ("false",)  # as where nothing may be mounted
from rocsteady.cli.main import main
sys.argv = ["rocsteady", *sys.argv[1:]]
main()
"""


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "deep").mkdir(parents=True)
    (project / "train.py").write_text("print(1)\n")
    (project / "checkpoints").mkdir()
    (project / "checkpoints" / "1.pt").write_bytes(b"\0weights")
    (tmp_path / "other").mkdir()
    return project


@pytest.fixture
def folder(plain: Path, tmp_path: Path) -> Path:
    project = plain
    (project / "train.py").write_text(SCRIPT.format(project=project))
    (project / "config.yaml").write_text(f"out: {project}/from-yaml\n")
    (project / "deep" / "config.json").write_text(f'{{"out": "{project}/from-json"}}\n')
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


@pytest.mark.parametrize("wanted", [Method.OVERLAY, Method.BIND])
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
    changed = differences(before, read_folder_tree(folder)) or ()
    count(f"absolute paths, {wanted.name.lower()}", "tried", len(WRITTEN))
    count(f"absolute paths, {wanted.name.lower()}", "written in the real folder", len(changed))
    assert changed == ()
    written = sorted(path.name for path in made.folder.glob("from-*"))
    assert written == sorted(f"from-{name}" for name in WRITTEN)


@pytest.mark.parametrize("wanted", [Method.OVERLAY, Method.BIND, Method.COPY])
def test_a_file_with_two_names_is_not_written_through_either(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Method
) -> None:
    choose(monkeypatch, wanted)
    outside = tmp_path / "other" / "data"
    outside.write_text("theirs")
    os.link(outside, plain / "data")
    os.link(plain / "train.py", plain / "deep" / "train.py")
    made = made_for(plain, tmp_path / "root", dict(os.environ))
    if made.method is not wanted:
        pytest.skip(f"not possible here: {wanted.value}")
    before = read_folder_tree(plain)
    code = "for name in ('data', 'train.py', 'deep/train.py'): open(name, 'a').write('x')"

    subprocess.run(made.command((sys.executable, "-c", code)), cwd=made.folder, check=True)

    assert differences(before, read_folder_tree(plain)) == ()
    assert outside.read_text() == "theirs"
    real = {it.inode for _, it in before.files()}
    assert real.isdisjoint(it.inode for _, it in read_folder_tree(made.folder).files())


@pytest.mark.parametrize("wanted", [Method.OVERLAY, Method.BIND, Method.COPY])
def test_a_folder_that_is_there_can_be_renamed(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Method
) -> None:
    choose(monkeypatch, wanted)
    made = made_for(plain, tmp_path / "root", dict(os.environ))
    if made.method is not wanted:
        pytest.skip(f"not possible here: {wanted.value}")
    rename = "import os; os.rename('checkpoints', 'old'); os.mkdir('checkpoints')"

    command = made.command((sys.executable, "-c", rename))
    done = subprocess.run(command, cwd=made.folder, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert (plain / "checkpoints" / "1.pt").exists()
    assert not (plain / "old").exists()
    remove(tmp_path / "root")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.py", "first\nopen('{here}/x', 'w')\n"),
        ("deep/paths.json", '{\n"out": "{escaped}"}\n'),
        ("config.yaml", "\nout: ~/project/x\n"),
        ("run.sh", "#!/bin/sh\ncd $HOME/project\n"),
        ("deep/a.cfg", "\nout={here}\n"),
        ("train.py", "first\nopen('/proc/1/root{here}/x', 'w')\n"),
        ("train.py", "first\nopen('/proc/self/task/1/root{here}/x', 'w')\n"),
    ],
)
def test_a_path_that_leaves_a_copy_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    choose(monkeypatch, Method.COPY)
    project = tmp_path / "project"
    (project / "deep").mkdir(parents=True)
    text = text.replace("{here}", str(project))
    (project / name).write_text(text.replace("{escaped}", str(project).replace("/", "\\/")))

    with pytest.raises(AbsolutePathError, match=rf"^{name}:2: contains the path of this folder"):
        made_for(project, tmp_path / "root", {**os.environ, "HOME": str(tmp_path)})


def test_a_copy_is_not_refused_for_paths_that_stay_outside_or_are_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, Method.COPY)
    project = tmp_path / "project"
    (project / ".vscode").mkdir(parents=True)
    (project / ".vscode" / "settings.json").write_text(f'{{"python": "{project}/.venv"}}')
    (project / "rocsteady.toml").write_text(f'command = "{project}/run.sh"')
    (project / "images.txt").write_text(f"{project}/1.png")
    (project / "train.py").write_text(f"'{project}-2/x', '/x{project}', '~/other', 'project/x'")
    variables = {
        "HOME": str(tmp_path),
        "OUT": f"{project}/out",
        "BOTH": f"/x:{project}/b:{project}-2",
    }

    made = made_for(project, tmp_path / "root", variables)

    assert made.is_copy
    assert made.command((f"{project}/run.sh", f"a=1,out={project}/x")) == (
        f"{made.folder}/run.sh",
        f"a=1,out={made.folder}/x",
    )
    changed = made.environment(variables)
    assert changed["OUT"] == f"{made.folder}/out"
    assert changed["BOTH"] == f"/x:{made.folder}/b:{project}-2"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("drill", "--faults", "kill@5"),
        ("plan", "--trial", "1s", "--within", "20s"),
        ("init", "--seconds", "1"),
    ],
)
def test_without_mounts_nothing_is_written_here(
    project: Project, torch_python: str, words: tuple[str, ...]
) -> None:
    project.program = (sys.executable, "-c", NO_MOUNTS)
    here = project.folder
    project.environment["OUT"] = f"{here}/from-variable"
    project.script("""
        import os, pathlib, sys, time, torch
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(500):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            time.sleep(0.01)
            for place in ("relative", os.environ["OUT"], sys.argv[1]):
                pathlib.Path(place).write_text("x")
    """)
    before = read_folder_tree(here)

    word = f"{here}/from-word"
    ended = project.say(*words, "--yes", "--", torch_python, "train.py", word, within=180)

    changed = set(differences(before, read_folder_tree(here)) or ()) - {"rocsteady.toml"}
    count(f"rocsteady {words[0]} in a copy, absolute paths", "tried", 2)
    count(f"rocsteady {words[0]} in a copy, absolute paths", "written here", len(changed))
    assert ended.code in ((0, 1) if words[0] == "drill" else (0,)), ended.err
    assert "runs in a copy of this folder" in ended.err
    assert changed == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("drill", "--faults", "kill@5"), ("plan", "--trial", "20s"), ("init",)]
)
def test_what_a_script_changed_here_is_reported_even_if_it_is_stopped(
    project: Project, words: tuple[str, ...]
) -> None:
    """In a copy that is not mounted, a path that the script puts together gets past it."""
    project.program = (sys.executable, "-c", NO_MOUNTS)
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


@pytest.mark.parametrize("words", [("drill", "--faults", "kill@5"), ("plan",), ("init",)])
def test_a_path_that_leaves_a_copy_ends_with_2(project: Project, words: tuple[str, ...]) -> None:
    project.program = (sys.executable, "-c", NO_MOUNTS)
    project.script(f"open('{project.folder}/x', 'w')")

    ended = project.say(*words, "--yes", "--", sys.executable, "train.py")

    assert ended.code == 2, ended.err
    assert "error: train.py:1: " in ended.err
    assert "Use a relative path" in ended.err
    assert not (project.folder / "x").exists()


@pytest.mark.parametrize("mounts", [True, False])
def test_a_link_of_the_kernel_that_may_not_be_read_is_no_obstacle(
    project: Project, *, mounts: bool
) -> None:
    project.program = project.program if mounts else (sys.executable, "-c", NO_MOUNTS)
    (project.folder / "link").symlink_to("/proc/1/root/no-such-file")
    project.script("# /proc/1/root\nprint(1)")

    out = "--out=/proc/1/root/no-such-file"
    ended = project.say("init", "--yes", "--", sys.executable, "train.py", out)

    assert ended.code == 0, ended.err


@pytest.mark.parametrize("words", [("drill", "--faults", "kill@5"), ("plan",), ("init",)])
@pytest.mark.parametrize(
    "line",
    [
        "open('data', 'a').write('x')",
        "sys.exit('401 Client Error')",
    ],
)
def test_what_the_sandbox_refuses_is_not_blamed_on_the_script(
    project: Project, words: tuple[str, ...], line: str
) -> None:
    outside = project.home / "data"
    outside.write_text("theirs")
    (project.folder / "data").symlink_to(outside)
    project.environment["HF_TOKEN"] = "hf_of_the_user"  # noqa: S105 - no real one
    project.script(f"import sys\n{line}")

    ended = project.say(*words, "--yes", "--", sys.executable, "train.py")

    if "runs in an overlay" not in ended.err and "data" in line:
        pytest.skip("a copy has a file of its own")
    assert ended.code == 2, ended.err
    assert "failed, not the script: " in ended.err
    assert outside.read_text() == "theirs"


def choose(monkeypatch: pytest.MonkeyPatch, wanted: Method) -> None:
    if wanted is Method.COPY:
        monkeypatch.setattr(scratch, "_started", lambda *_, **__: ("false",))
    elif wanted is Method.BIND:
        monkeypatch.setattr(scratch, "_may_overlay", lambda _: False)
