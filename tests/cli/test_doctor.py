"""Exit codes, output and options of ``rocsteady doctor``, seen from outside."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady_knowledge import VERSION

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady

TOOLS = Path(__file__).parents[2] / "tools"


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
    told = cli("doctor", "-v")

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
    told = cli("explain", "caching-off")

    assert told.code == 0
    assert "https://github.com/pytorch/pytorch" in told.out
    assert "Confirmed on hardware: no" in told.out


def test_explain_leaves_no_placeholder(cli: Rocsteady) -> None:
    told = cli("explain", "wheel-lacks-arch").out

    assert "'torch[device-<gfx>]'" in told
    assert "{" not in told


def test_explain_suggests_the_rule_that_was_meant(cli: Rocsteady) -> None:
    assert "caching-off" in cli("explain", "cachin-off").err


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

    typed = ("unset ", "export ", "rm ", "grep ", "pip ", "sudo ", "rocsteady ")
    said = [re.sub(r"^(fix: |check: |\d+\. )", "", line.strip()) for line in lines]
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


def test_the_knowledge_says_when_upstream_was_looked_at_and_what_is_open(cli: Rocsteady) -> None:
    """The names are those of tools/watch_*.py, which write the table."""
    watchers = json.loads(cli("doctor", "--knowledge", "--json").out)["watchers"]
    screen = cli("doctor", "--knowledge").out
    lines = screen.partition("Compared with what is upstream")[2].splitlines()

    names = {path.stem: path.read_text() for path in TOOLS.glob("watch_*.py")}
    assert len(watchers) == len(names) == 5
    for watcher in watchers:
        assert [name for name, text in names.items() if f'run("{watcher["name"]}", look)' in text]
        line = next(line for line in lines if line.startswith(watcher["name"]))
        count = len(watcher["open"] + watcher["changed"])
        assert f"{count} open" in line
        assert (watcher["looked"] or "never yet") in line


def test_prints_a_block_for_an_issue(cli: Rocsteady) -> None:
    told = cli("machine", "--root", cli.machine("rx5700xt-override"))

    assert told.code == 0
    assert "gfx1010" in told.out
    assert "HSA_OVERRIDE_GFX_VERSION" in told.out
    assert told.out.startswith("```text\n")


def test_json_has_what_the_screen_has(cli: Rocsteady) -> None:
    machine = json.loads(cli("machine", "--json", "--root", cli.machine("mi300x-cpx")).out)

    assert len(machine["gpus"]["gpus"]) == 63
    assert {gpu["gfx"] for gpu in machine["gpus"]["gpus"]} == {"gfx942"}


def test_a_recording_of_this_machine_replays_to_the_same_diagnosis(
    cli: Rocsteady, tmp_path: Path
) -> None:
    recording = tmp_path / "mine.json"

    written = cli("machine", "--record", recording)
    here, there = cli("doctor", "--json"), cli("doctor", "--json", "--root", recording)

    assert (written.code, written.out) == (0, "")
    assert "Read the file before you send it" in written.err
    ours, theirs = json.loads(here.out), json.loads(there.out)
    for told in (ours, theirs):
        del told["facts_read"], told["machine"]["python"], told["unchecked"]
    assert theirs == ours
    assert here.code == there.code


def test_a_recording_names_nobody(cli: Rocsteady, tmp_path: Path) -> None:
    home = tmp_path / "home" / "jadwiga"
    home.mkdir(parents=True)
    recording = tmp_path / "mine.json"
    secrets = {
        "HOME": str(home),
        "USER": "jadwiga",
        "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwx",
        "AMD_LICENCE_KEY": "not-for-you",
        "LD_LIBRARY_PATH": f"{home}/lib",
        "NCCL_SOCKET_IFNAME": "eth0",
    }

    cli("machine", "--record", recording, env=secrets)

    text = recording.read_text()
    assert json.loads(text)["environment"]["LD_LIBRARY_PATH"] == "/tmp/user/lib"
    for secret in ("jadwiga", "hf_abc", "not-for-you"):
        assert secret not in text


def test_a_folder_that_cannot_be_written_to_is_said_in_one_line(
    cli: Rocsteady, tmp_path: Path
) -> None:
    ended = cli("machine", "--record", tmp_path / "missing" / "mine.json")

    assert (ended.code, ended.out) == (3, "")
    assert len(ended.err.splitlines()) == 1


def test_a_recording_is_not_left_half_written(cli: Rocsteady, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()

    assert cli("machine", "--record", target).code == 2
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("name", ["rx9070xt-windows", "wsl2", "old-kernel", "no-amd-gpu"])
def test_every_kind_of_machine_can_be_shown(cli: Rocsteady, name: str) -> None:
    assert cli("machine", "--root", cli.machine(name)).code == 0


SECRET = "hf_" + "Qx7Rk2Lm9Tz4Wv8Yb1Nc6Dp3Fs5Gh0Ja"


def test_the_variables_in_effect_are_judged(cli: Rocsteady) -> None:
    shown = cli("env", env={"HSA_ENABLE_SMDA": "0", "EDITOR": "vi"})

    assert shown.code == 1
    assert "unknown    HSA_ENABLE_SMDA" in shown.out
    assert "HSA_ENABLE_SDMA" in shown.out
    assert "EDITOR" not in shown.out


def test_nothing_set_is_nothing_wrong(cli: Rocsteady) -> None:
    shown = cli("env", "--root", cli.machine("rx7900xtx"))

    assert shown.code == 0, shown.out


def test_json_has_the_sources_and_the_same_verdicts(cli: Rocsteady) -> None:
    (cli.folder / "run.sh").write_text("export HSA_XNACK=1\n")
    told = cli("env", "run.sh", "--root", cli.machine("rx7900xtx"), "--json")

    review = json.loads(told.out)

    assert told.code == 1
    assert review["version"] == 1
    assert [each["effect"] for each in review["variables"]] == ["no effect"]
    assert review["variables"][0]["reasons"][0]["sources"]
    assert review["variables"][0]["place"] == "line 1"


def test_no_secret_is_shown(cli: Rocsteady) -> None:
    script = f"export HF_TOKEN={SECRET}\nexport HSA_TOKEN={SECRET}\nexport NCCL_COMM_ID={SECRET}\n"
    (cli.folder / "run.sh").write_text(script)

    for words in (("--json",), ()):
        shown = cli("env", "run.sh", "--root", cli.machine("rx7900xtx"), *words)
        assert "HSA_TOKEN" in shown.out
        assert SECRET not in shown.out + shown.err


def test_a_file_that_is_not_there_is_a_usage_error(cli: Rocsteady) -> None:
    assert cli("env", "none.sh").code == 2
    assert cli("env", ".").code == 2


def test_a_copied_folder_has_no_variables_in_effect(cli: Rocsteady) -> None:
    (cli.folder / "copy/proc").mkdir(parents=True)
    (cli.folder / "copy/proc/version").write_text("Linux version 6.8.0")

    shown = cli("env", "--root", cli.folder / "copy")

    assert shown.code == 3
    assert "name a file" in shown.err


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_mark_of_the_encoding_hides_nothing(
    cli: Rocsteady, tmp_path: Path, encoding: str
) -> None:
    file = tmp_path / ".env"
    file.write_text("AMD_LOG_LEVEL=3\n", encoding=encoding)
    assert "AMD_LOG_LEVEL" in cli("env", str(file)).out


def test_what_is_no_text_is_not_examined(cli: Rocsteady, tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_bytes(b"\x7fELF\0\0AMD_LOG_LEVEL=3\n")
    said = cli("env", str(file))
    assert (said.code, "not a text file" in said.err) == (3, True)


def test_what_is_not_named_is_that_of_the_machine(cli: Rocsteady) -> None:
    shown = cli("wheels", "--root", cli.machine("rx7900xtx"))

    assert shown.code == 0
    assert shown.out.startswith("torch builds for gfx1100 on linux, Python 3.12\n")


def test_json_has_the_same_builds(cli: Rocsteady) -> None:
    told = cli("wheels", "--gpu", "gfx1031", "--os", "windows", "--python", "3.12", "--json")

    found = json.loads(told.out)

    assert (told.code, found["version"], found["gfx"]) == (0, 1, "gfx1031")
    assert all(offer["sources"] for offer in found["offers"])


def test_no_build_is_1_no_gpu_is_3_and_a_wrong_name_is_2(cli: Rocsteady) -> None:
    assert cli("wheels", "--gpu", "gfx803", "--os", "linux").code == 1
    without = cli("wheels", "--root", cli.machine("no-amd-gpu"))
    assert without.code == 3
    assert "--gpu gfx1100" in without.err
    dropped = cli("wheels", "--gpu", "RX 580", "--os", "linux").out
    assert "ROCm 4.0" in " ".join(dropped.split())
    assert "Did you mean 'Radeon RX 7600 XT'?" in cli("wheels", "--gpu", "RX 7600M XT").err
    assert "Did you mean 'gfx1100'?" in cli("wheels", "--gpu", "gfx11000").err
    assert cli("wheels", "--gpu", "gfx1100", "--python", "three").code == 2
    assert cli("wheels", "--gpu", "gfx1100", "--os", "beos").code == 2


def test_both_architectures_of_a_machine_are_named(cli: Rocsteady) -> None:
    shown = cli("wheels", "--all", "--root", cli.machine("rx7900xtx-rx6700xt"))

    assert shown.out.startswith("torch builds for gfx1100 and gfx1031 on linux")
    assert "No code for gfx1031." in shown.out


def test_several_gpus_can_be_named(cli: Rocsteady) -> None:
    gpus = ("--gpu", "RX 7900 XTX", "--gpu", "gfx1031")
    shown = cli("wheels", "--all", *gpus, "--os", "linux")

    assert shown.out.startswith("torch builds for gfx1100 and gfx1031 on linux")
    assert "torch[device-gfx1100,device-gfx1031]" in shown.out
    assert "No code for gfx1031." in shown.out
    assert "'gfx9999'" in cli("wheels", "--gpu", "gfx1100", "--gpu", "gfx9999").err


def test_an_override_that_stands_in_is_named_where_the_builds_are(cli: Rocsteady) -> None:
    shown = cli("wheels", "--gpu", "gfx1031", "--os", "linux")

    assert "HSA_OVERRIDE_GFX_VERSION=10.3.0" in shown.out
    assert "AMD does not support that" in " ".join(shown.out.split())
