"""Names that are not UTF-8: of folders, scripts, arguments, variables, checkpoints and outputs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from supervised import Project

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are Unicode")

ODD = os.fsdecode(b"\xff\xfe")
SCRIPT = """
    import os, sys
    print("odd", ascii(sys.argv[1:]), ascii(os.environ.get("ODD")), os.fsencode(os.getcwd()))
    if os.path.exists("out"):
        open(os.fsdecode(b"out/\\xfd.pt"), "wb").write(b"x" * 100)
    sys.exit(0 if os.path.exists("once") else open("once", "w").close() or 1)
"""
JOB = """
    [resume]
    arguments = ["{checkpoint}"]
    checkpoints = ["out/*.pt"]
"""


@pytest.mark.parametrize("what", ["folder", "script", "argument", "variable", "checkpoint", "log"])
def test_a_name_that_is_not_utf8_stops_nothing(project: Project, what: str) -> None:
    script = f"{ODD}.py" if what == "script" else "train.py"
    words = [ODD] if what == "argument" else []
    if what == "folder":
        project.folder = project.folder / ODD
        project.folder.mkdir()
    if what == "variable":
        project.environment["ODD"] = ODD
    project.script(SCRIPT, script)
    if what == "log":
        project.script("import os; os.write(1, b'\\xff\\xfe\\n'); os.write(2, b'\\xff\\n')", script)
    if what == "checkpoint":
        (project.folder / "out").mkdir()
        Path(os.fsdecode(os.fsencode(project.folder) + b"/out/\xff.pt")).write_bytes(b"x" * 100)
        project.job(JOB, script)
        command = []
    else:
        command = ["--", sys.executable, script, *words]

    begun = project.run(*command)
    ended = project.run("--resume", project.name)
    told = [project.say(*words) for words in (("status",), ("report",), ("status", "--json"),
                                              ("logs",), ("report", "--json"))]  # fmt: skip

    assert (begun.code, ended.code) in ((1, 0), (0, 0)), (begun.err, ended.err)
    assert [(each.code, "bug" in each.err) for each in told] == [(0, False)] * 5, told
    assert project.line()["run"]["outcome"] == "done"
