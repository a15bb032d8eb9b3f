"""``doctor --share``: what is shown is all there is, and only the user opens the form."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from supervised import Project

from rocsteady.cli.share import shared_names, tried_here
from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.knowledge.observations import Tried, decode_entry
from rocsteady.doctor.machine.machine import examine
from rocsteady.system.disk_root import DiskRoot

MACHINE = Path(__file__).parents[1] / "machines" / "rx9070xt.json"
SHARES = f"""
from pathlib import Path
from rocsteady.cli.options import open_root
from rocsteady.cli.share import share
from rocsteady.doctor.knowledge.observations import Tried
from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.doctor.machine.machine import examine
machine, _ = examine(open_root(Path({str(MACHINE)!r}), None), load_knowledge().variables)
share(machine, [Tried(what="run", times=3, failures={{"gpu-hang": 1}})])
"""
CRASHES = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


def environment(folder: Path) -> dict[str, str]:
    """Return one with a browser that only notes where it is sent."""
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{folder}/opened"\n')
    browser.chmod(0o700)
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "BROWSER": f"{browser} %s"}


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_the_form_opens_only_after_yes(tmp_path: Path, answer: str) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        [sys.executable, "-c", SHARES],
        stdin=theirs,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        env=environment(tmp_path),
    )
    os.close(ours)
    os.close(theirs)

    shown = decode_entry(done.stdout)
    assert shown.gpu.gfx == "gfx1201"
    opened = tmp_path / "opened"
    assert opened.exists() is (answer == "y")
    if opened.exists():
        fields = parse_qs(urlsplit(opened.read_text()).query)
        assert fields["template"] == ["observation.yml"]
        assert decode_entry(fields["entry"][0]) == shown  # what is opened is what was shown


def test_without_a_terminal_the_address_is_printed_and_nothing_opens(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHARES],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        env=environment(tmp_path),
    )

    assert json.loads(done.stdout)["gpu"]["gfx"] == "gfx1201"
    assert "https://github.com/" in done.stderr
    assert not (tmp_path / "opened").exists()


def test_runs_are_counted_and_those_with_injected_faults_are_not(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = project.script(CRASHES)
    command = ("--resume", "never", "--", sys.executable, script)
    assert project.run(*command).code == 139
    project.environment["ROCSTEADY_FAULTS"] = '{"version": 1, "faults": []}'
    project.run(*command, name="injected")
    monkeypatch.setenv("HOME", str(project.home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.chdir(project.folder)
    knowledge = doctors_knowledge()
    machine, _ = examine(DiskRoot(python=sys.executable), knowledge.variables)

    found = tried_here(machine, knowledge, shared_names())

    assert found == [Tried(what="run", times=1, failures={"segfault": 1})]
    assert project.say("doctor", "--share").code == 3  # no AMD GPU here


def test_with_nothing_tried_there_is_nothing_to_share(project: Project) -> None:
    ended = project.say("doctor", "--share")

    assert (ended.code, ended.out, len(ended.err.splitlines())) == (3, "", 1)
