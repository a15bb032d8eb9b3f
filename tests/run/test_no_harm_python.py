"""However Python is started, and by whom: it runs as without us, or it is said that we are out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from process_facts import SAYS
from side_by_side import SideBySide

PYTHON = sys.executable


@pytest.fixture
def runs(tmp_path: Path) -> SideBySide:
    return SideBySide(tmp_path)


@pytest.mark.parametrize(
    "how",
    [
        ("train.py", "a"),
        ("-m", "train", "--", "a"),
        ("-m", "package", "a"),
        ("-m", "package.inner", "--name", "x"),
        ("-c", "import sys; print(sys.argv, sys.path, __name__)", "a b", "--", ""),
        ("-",),
        ("-u", "-X", "dev", "-W", "error", "-O", "train.py"),
        ("folder",),
        ("archive.zip", "a"),
    ],
    ids=" ".join,
)
def test_a_program_is_itself_however_it_is_named(runs: SideBySide, how: tuple[str, ...]) -> None:
    for name in ("train.py", "package/__main__.py", "package/inner.py", "folder/__main__.py"):
        runs.script(SAYS, name)
    runs.script("", "package/__init__.py")
    archive = "import zipfile; zipfile.ZipFile('archive.zip', 'w').write('train.py', '__main__.py')"
    runs.bare(PYTHON, "-c", archive)

    ended = runs.both(PYTHON, *how, stdin=b"import sys; print(sys.argv)")

    assert ended.code == 0
    assert ended.out != b""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_find_the_same(runs: SideBySide, method: str) -> None:
    script = runs.script(f"""
        import multiprocessing, os, sys
        def work(queue, value):
            names = sorted(name for name in sys.modules if "rocsteady" in name)
            queue.put((value * 2, sys.argv, names, __name__, os.getcwd()))
            sys.exit(value)
        if __name__ == "__main__":
            context = multiprocessing.get_context({method!r})
            queue = context.Queue()
            children = [context.Process(target=work, args=(queue, n)) for n in range(3)]
            for child in children: child.start()
            print(sorted(queue.get() for _ in children))
            for child in children: child.join()
            print([child.exitcode for child in children])
            with context.Pool(2) as pool: print(pool.map(abs, [-1, 2]))
    """)

    ended = runs.both(PYTHON, script, "--lr", "0.1", PYTHONHASHSEED="0")

    assert ended.out.endswith(b"[0, 1, 2]\n[1, 2]\n")
    assert ended.err == b""


def test_the_users_own_sitecustomize_and_usercustomize_run(runs: SideBySide) -> None:
    runs.script("import sys; sys.mine = [__name__, __file__]", "theirs/sitecustomize.py")
    runs.script("import sys; sys.mine.append(__name__)", "theirs/usercustomize.py")
    runs.script("print('a module of mine')", "theirs/mine.py")
    text = "import mine, sitecustomize, sys; print(sitecustomize.__file__, sys.mine, sys.path)"

    ended = runs.both(PYTHON, "-c", text, PYTHONPATH=f"{runs.folder}/theirs:")

    assert ended.out.startswith(b"a module of mine\n")
    assert b"['sitecustomize'" in ended.out


def test_a_sitecustomize_that_fails_fails_the_same(runs: SideBySide) -> None:
    """Our own Python, which has the same PYTHONPATH, fails at it too, and so it is said twice."""
    runs.script("raise ValueError('of theirs')", "theirs/sitecustomize.py")
    theirs = str(runs.folder / "theirs")

    bare = runs.bare(PYTHON, "-c", "print('on')", PYTHONPATH=theirs)
    watched = runs.watched(PYTHON, "-c", "print('on')", PYTHONPATH=theirs)

    assert b"of theirs" in bare.err
    assert watched == bare._replace(err=bare.err * 2)


def test_a_missing_sitecustomize_and_a_failing_import_fail_the_same(runs: SideBySide) -> None:
    runs.script("import nothing_of_the_kind", "theirs/broken.py")
    text = "try: import sitecustomize\nexcept ImportError as e: print(repr(e))\nimport broken"

    ended = runs.both(PYTHON, "-c", text, PYTHONPATH=str(runs.folder / "theirs"))

    assert ended.code == 1


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_where_we_cannot_get_in_it_runs_all_the_same(runs: SideBySide, option: str) -> None:
    text = "import sys; print(sys.flags, sys.argv, '_rocsteady_inside' in sys.modules)"

    runs.both(PYTHON, option, "-c", text)


def test_a_program_of_another_kind(runs: SideBySide) -> None:
    assert runs.both("cat", "-", stdin=b"\0\xff no newline").out == b"\0\xff no newline"
    assert runs.both("ls", "/does/not/exist").code == 2
    assert not any("steps" in line for line in runs.said)


@pytest.mark.parametrize("first", ["#!/bin/sh\n", "#!/usr/bin/env bash\n", ""])
def test_a_shell_script_runs_with_or_without_a_first_line(runs: SideBySide, first: str) -> None:
    text = f'echo "$0" "$#" "$1"; cd /; {PYTHON} -c "import os; print(os.getcwd())"; kill -9 $$\n'
    Path(runs.script(first + text, "train.sh")).chmod(0o755)

    ended = runs.watched("./train.sh", "a b", "")

    assert ended == runs.bare("sh", "-c", 'exec "$@"', "sh", "./train.sh", "a b", "")
    assert (ended.code, ended.out) == (137, b"./train.sh 2 a b\n/\n")


def test_a_shell_script_that_sets_its_own_pythonpath(runs: SideBySide) -> None:
    runs.script("print('theirs')", "theirs/mine.py")
    script = runs.script(f"PYTHONPATH=theirs {PYTHON} -c 'import mine, sys; print(sys.path)'\n")

    assert b"theirs" in runs.both("sh", script).out


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [
        ("not-a-command", 127, "not-a-command: No such file or directory"),
        ("./not-there", 127, "./not-there: No such file or directory"),
        ("/", 126, "/: Permission denied"),
        ("./plain", 126, "./plain: Permission denied"),
    ],
)
def test_what_cannot_be_started_is_one_line_and_the_code_of_a_shell(
    runs: SideBySide, command: str, code: int, why: str
) -> None:
    runs.script("echo never", "plain")

    ended = runs.watched(command)

    assert ended == (code, b"", b"")
    assert runs.said[-1].startswith(f"rocsteady: {why}")
    assert ended.code == runs.bare("sh", "-c", f"exec {command}").code
