"""``rocsteady doctor --facts`` and ``--record``: the facts, and a recording of them to send."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Rocsteady


def test_shows_the_facts_and_judges_nothing(cli: Rocsteady) -> None:
    told = cli("doctor", "--facts", "--root", cli.machine("rx5700xt-override"))

    assert told.code == 0
    assert "gfx1010" in told.out
    assert "HSA_OVERRIDE_GFX_VERSION" in told.out
    assert "BLOCK" not in told.out


def test_json_has_what_the_screen_has(cli: Rocsteady) -> None:
    machine = json.loads(
        cli("doctor", "--facts", "--json", "--root", cli.machine("mi300x-cpx")).out
    )

    assert len(machine["gpus"]["gpus"]) == 63
    assert {gpu["gfx"] for gpu in machine["gpus"]["gpus"]} == {"gfx942"}


def test_a_recording_of_this_machine_replays_to_the_same_diagnosis(
    cli: Rocsteady, tmp_path: Path
) -> None:
    recording = tmp_path / "mine.json"

    written = cli("doctor", "--record", recording)
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

    cli("doctor", "--record", recording, env=secrets)

    text = recording.read_text()
    assert json.loads(text)["environment"]["LD_LIBRARY_PATH"] == "/tmp/user/lib"
    for secret in ("jadwiga", "hf_abc", "not-for-you"):
        assert secret not in text


def test_a_folder_that_cannot_be_written_to_is_said_in_one_line(
    cli: Rocsteady, tmp_path: Path
) -> None:
    ended = cli("doctor", "--record", tmp_path / "missing" / "mine.json")

    assert (ended.code, ended.out) == (3, "")
    assert len(ended.err.splitlines()) == 1


def test_a_recording_is_not_left_half_written(cli: Rocsteady, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()

    assert cli("doctor", "--record", target).code == 2
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("name", ["rx9070xt-windows", "wsl2", "old-kernel", "no-amd-gpu"])
def test_every_kind_of_machine_can_be_shown(cli: Rocsteady, name: str) -> None:
    assert cli("doctor", "--facts", "--root", cli.machine(name)).code == 0
