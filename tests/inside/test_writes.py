"""What a start that may have to be undone notes of the files that it changes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rocsteady_train.inside import wire


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").touch()
    return tmp_path / "notes"


def noted(notes: Path, script: str) -> dict[str, list[str]]:
    """Run a script that notes; return what it noted of each file, how it was before left out."""
    folder = notes.parent / "work"
    folder.mkdir(exist_ok=True)
    begin = "from rocsteady_train.inside import writes\nwrites.start()\n"
    subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(script)],
        cwd=folder,
        env={**os.environ, wire.WRITES: str(notes)},
        check=True,
    )
    found: dict[str, list[str]] = {}
    for line in notes.read_bytes().split(b"\0")[:-1] if notes.exists() else ():
        what, _, size, path = os.fsdecode(line).split(" ", 3)
        found.setdefault(os.path.relpath(path, folder), []).append(f"{what} {size}")
    return found


def test_each_way_to_change_a_file_is_noted_with_what_it_was(notes: Path) -> None:
    script = """
        import os, pathlib, shutil
        for name in "abcdefg":
            pathlib.Path(name).write_text("1234")
        with open("new", "w") as file: file.write("1")
        os.mkdir("inner")
        os.replace("a", "moved")
        os.remove("b")
        os.truncate("c", 2)
        os.close(os.open("d", os.O_WRONLY))
        open(file="e", mode="a").close()
        shutil.copy("f", "inner/copy")
        pathlib.Path("g").rename("inner/g")
        shutil.rmtree("inner")
    """

    found = noted(notes, script)

    assert {name: found[name] for name in ("a", "moved", "b", "c", "new")} == {
        "a": ["w -1", "r 4"],
        "moved": ["w -1"],
        "b": ["w -1", "r 4"],
        "c": ["w -1"],
        "new": ["w -1"],
    }
    assert found["inner/copy"] == ["w -1", "r 4"]
    assert found["inner/g"] == ["w -1", "r 4"]
    assert found["inner"][0][0] == wire.REMOVED


def test_what_is_only_read_is_not_noted(notes: Path) -> None:
    (notes.parent / "work").mkdir()
    (notes.parent / "work/data").write_text("1")
    script = """
        import os
        open("data").close()
        open("data", "rb").close()
        open("data", mode="r").close()
        os.close(os.open("data", os.O_RDONLY))
        os.fdopen(os.dup(1), "w").close()
    """

    assert noted(notes, script) == {}


def test_a_link_is_followed_where_its_file_is_written(notes: Path) -> None:
    script = """
        import os
        os.symlink("file", "link")
        open("link", "w").close()
        os.remove("link")
    """

    assert noted(notes, script) == {"file": ["w -1"], "link": ["r 0"]}


def test_the_functions_are_pythons_own_once_the_list_is_gone(notes: Path) -> None:
    script = """
        import builtins, io, os
        assert open is not writes._originals[builtins, "open"][0]
        os.remove(writes.LIST)
        open("other", "w").close()
        assert builtins.open is io.open, "the same function again"
        assert os.remove.__module__ == "posix"
        assert not hasattr(os.remove, "__wrapped__")
    """

    noted(notes, script)


def test_a_script_gets_the_errors_that_it_gets_otherwise(notes: Path) -> None:
    script = """
        import os, traceback
        for call, kind in (
            (lambda: open("none/file", "w"), FileNotFoundError),
            (lambda: open("file", "no such mode"), ValueError),
            (lambda: open(), TypeError),
            (lambda: open("file", []), TypeError),
            (lambda: os.remove("none"), FileNotFoundError),
            (lambda: os.rename("none"), TypeError),
            (lambda: os.open("a\\0b", os.O_WRONLY), ValueError),
        ):
            try:
                call()
            except kind:
                assert "writes.py" not in traceback.format_exc(), traceback.format_exc()
            else:
                raise AssertionError(kind)
    """

    noted(notes, script)
