"""Exit codes, output and options of ``rocsteady doctor``, seen from outside."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rocsteady_knowledge import VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Rocsteady


@pytest.mark.parametrize(
    ("machine", "code"),
    [("rx7900xtx", 0), ("rx7900xt-pair", 0), ("rx5700xt-override", 1), ("kfd-denied", 1)],
)
def test_exit_code_is_0_if_nothing_blocks_and_1_if_something_does(
    cli: Rocsteady, machine: str, code: int
) -> None:
    assert cli("doctor", "--root", cli.machine(machine)).code == code
    assert cli("doctor", "--json", "--root", cli.machine(machine)).code == code


def test_strict_counts_risks_and_not_notes(cli: Rocsteady) -> None:
    assert cli("doctor", "--strict", "--root", cli.machine("rx7900xt-pair")).code == 1
    assert cli("doctor", "--strict", "--root", cli.machine("radeon-780m")).code == 0
    assert cli("doctor", "--strict", "--root", cli.machine("rx7900xtx")).code == 0


def test_json_is_all_that_goes_to_stdout(cli: Rocsteady) -> None:
    told = cli("doctor", "--json", "--root", cli.machine("rx7900xt-pair"))

    diagnosis = json.loads(told.out)
    assert told.err == ""
    assert [finding["rule"] for finding in diagnosis["findings"] if finding["severity"] == "risks"]
    assert diagnosis["trains_on"] == "gpu"


def test_this_machine_can_be_examined(cli: Rocsteady) -> None:
    told = cli("doctor")

    assert told.code in (0, 1)
    assert told.err == ""
    assert "facts" in told.out
    assert told.seconds < 10  # on a busy machine


def test_a_recording_that_cannot_be_read_is_3_and_one_line(cli: Rocsteady, tmp_path: Path) -> None:
    damaged = tmp_path / "machine.json"
    damaged.write_text('{"version": 1, "files": ')

    ended = cli("doctor", "--root", damaged)

    assert (ended.code, ended.out) == (3, "")
    assert len(ended.err.splitlines()) == 1
    assert "machine.json" in ended.err


def test_a_folder_without_a_machine_in_it_is_3(cli: Rocsteady, tmp_path: Path) -> None:
    ended = cli("doctor", "--root", tmp_path)

    assert (ended.code, ended.out) == (3, "")
    assert "neither /sys nor /proc" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--root", "nowhere.json"),
        ("--python", "nowhere/bin/python"),
        ("--explain", "no-such-rule"),
        ("--format", "xml"),
    ],
)
def test_wrong_usage_is_2_and_names_what_is_wrong(
    cli: Rocsteady, arguments: tuple[str, str]
) -> None:
    ended = cli("doctor", *arguments)

    assert (ended.code, ended.out) == (2, "")
    assert arguments[1] in ended.err or arguments[0] in ended.err
    assert "Traceback" not in ended.err


def test_explain_tells_the_whole_story_with_sources(cli: Rocsteady) -> None:
    told = cli("doctor", "--explain", "caching-off")

    assert told.code == 0
    assert "https://github.com/pytorch/pytorch" in told.out
    assert "Confirmed on hardware: no" in told.out


def test_explain_leaves_no_placeholder(cli: Rocsteady) -> None:
    told = cli("doctor", "--explain", "wheel-lacks-arch").out

    assert "'torch[device-<gfx>]'" in told
    assert "{" not in told


def test_explain_suggests_the_rule_that_was_meant(cli: Rocsteady) -> None:
    assert "caching-off" in cli("doctor", "--explain", "cachin-off").err


def test_list_names_every_rule_once(cli: Rocsteady) -> None:
    listed = cli("doctor", "--list")
    as_json = json.loads(cli("doctor", "--list", "--json").out)

    names = [rule["id"] for rule in as_json["rules"]]
    assert listed.code == 0
    assert names
    assert all(listed.out.count(f"  {name} ") == 1 for name in names)


def test_no_colour_and_nothing_but_ascii_outside_a_terminal(cli: Rocsteady) -> None:
    told = cli("doctor", "--root", cli.machine("rx5700xt-override"))

    assert told.out.isascii()
    assert "\x1b" not in told.out


def on_a_terminal(cli: Rocsteady, *, columns: int, **env: str) -> str:
    """Run the doctor with a terminal of this width and return what it wrote there."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        cli.line("doctor", "--root", cli.machine("rx5700xt-override")),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**cli.environment, "COLUMNS": str(columns), "TERM": "xterm", **env},
    )
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 4096):
            written += chunk
    except OSError:  # how Linux says that the last writer is gone
        pass
    os.close(ours)
    assert child.wait(10) == 1
    return written.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colour_unless_it_asks_for_none(cli: Rocsteady) -> None:
    assert "\x1b[" in on_a_terminal(cli, columns=80)
    assert "\x1b" not in on_a_terminal(cli, columns=80, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(cli, columns=80, TERM="dumb")


@pytest.mark.parametrize("columns", [1, 40, 80, 300])
def test_prose_fits_the_terminal_and_commands_stay_whole(cli: Rocsteady, columns: int) -> None:
    lines = on_a_terminal(cli, columns=columns, NO_COLOR="1").splitlines()

    typed = ("unset ", "grep ", "pip ", "sudo ", "rocsteady ")
    said = [line.strip().removeprefix("fix: ") for line in lines]
    prose = [line for line, words in zip(lines, said, strict=True) if not words.startswith(typed)]
    assert max(map(len, prose)) <= max(40, min(columns, 120))
    assert "unset HSA_OVERRIDE_GFX_VERSION" in said


def test_a_reader_who_leaves_costs_neither_the_exit_code_nor_a_traceback(cli: Rocsteady) -> None:
    child = subprocess.Popen(
        cli.line("doctor", "--root", cli.machine("rx5700xt-override")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=cli.environment,
    )
    assert child.stdout is not None
    child.stdout.close()
    _, errors = child.communicate(timeout=10)

    assert (child.returncode, errors) == (1, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="/dev/full is Linux's")
def test_output_that_cannot_be_written_is_said(cli: Rocsteady) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device, not a path of ours
        ended = subprocess.run(
            cli.line("doctor", "--root", cli.machine("rx7900xtx")),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
            env=cli.environment,
        )

    assert ended.returncode == 3
    assert "No space left" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_any_encoding_of_the_terminal_will_do(cli: Rocsteady, encoding: str) -> None:
    told = cli("doctor", "--root", cli.machine("rx7900xtx"), env={"PYTHONIOENCODING": encoding})

    assert (told.code, told.err) == (0, "")


def test_the_knowledge_has_a_version_tables_and_an_upgrade_command(cli: Rocsteady) -> None:
    report = json.loads(cli("doctor", "--knowledge", "--json").out)
    screen = cli("doctor", "--knowledge")

    assert report["state"]["version"] == VERSION
    assert "rules" in [table["name"] for table in report["tables"]]
    assert report["ignored"] == []
    assert report["upgrade"] in screen.out
    assert screen.code == 0


def test_own_entries_of_the_user_count_and_a_bad_one_is_named(cli: Rocsteady) -> None:
    own = cli.folder / "config" / "rocsteady" / "knowledge"
    own.mkdir(parents=True)
    (own / "bad.toml").write_text("[[rule]]\nid = 'mine'\n")
    (own / "good.toml").write_text(
        "[[variable]]\nname = 'LAB_SWITCH'\nread_by = 'us'\nmeaning = 'Ours.'\nsources = ['lab']\n"
        "[sources.lab]\nowner = 'lab'\nname = 'wiki'\ntitle = 'A page'\ndate = '2026'\n"
    )
    environment = dict.fromkeys(("XDG_CONFIG_HOME", "LOCALAPPDATA"), str(cli.folder / "config"))

    report = json.loads(cli("doctor", "--knowledge", "--json", env=environment).out)

    assert report["own"] == 1
    assert len(report["state"]["notes"]) == 1
    assert "mine" in report["state"]["notes"][0]
