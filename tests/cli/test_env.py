"""``rocsteady doctor env`` from the outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Rocsteady

SECRET = "hf_" + "Qx7Rk2Lm9Tz4Wv8Yb1Nc6Dp3Fs5Gh0Ja"


def test_the_variables_in_effect_are_judged(cli: Rocsteady) -> None:
    shown = cli("doctor", "env", env={"HSA_ENABLE_SMDA": "0", "EDITOR": "vi"})

    assert shown.code == 1
    assert "unknown    HSA_ENABLE_SMDA" in shown.out
    assert "HSA_ENABLE_SDMA" in shown.out
    assert "EDITOR" not in shown.out


def test_nothing_set_is_nothing_wrong(cli: Rocsteady) -> None:
    shown = cli("doctor", "env", "--root", cli.machine("rx7900xtx"))

    assert shown.code == 0, shown.out


def test_json_has_the_sources_and_the_same_verdicts(cli: Rocsteady) -> None:
    (cli.folder / "run.sh").write_text("export HSA_XNACK=1\n")
    told = cli("doctor", "env", "run.sh", "--root", cli.machine("rx7900xtx"), "--json")

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
        shown = cli("doctor", "env", "run.sh", "--root", cli.machine("rx7900xtx"), *words)
        assert "HSA_TOKEN" in shown.out
        assert SECRET not in shown.out + shown.err


def test_a_file_that_is_not_there_or_cannot_be_read_is_one_line(cli: Rocsteady) -> None:
    (cli.folder / "bad.ipynb").write_text("{")
    (cli.folder / "bad.toml").write_text("a = = 1")

    assert cli("doctor", "env", "none.sh").code == 2
    assert cli("doctor", "env", ".").code == 2
    for name in ("bad.ipynb", "bad.toml"):
        shown = cli("doctor", "env", name)
        assert shown.code == 3
        assert shown.err.startswith(f"rocsteady: {name}: ")
        assert len(shown.err.splitlines()) == 1


def test_a_copied_folder_has_no_variables_in_effect(cli: Rocsteady) -> None:
    (cli.folder / "copy/proc").mkdir(parents=True)
    (cli.folder / "copy/proc/version").write_text("Linux version 6.8.0")

    shown = cli("doctor", "env", "--root", cli.folder / "copy")

    assert shown.code == 3
    assert "name a file" in shown.err


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_mark_of_the_encoding_hides_nothing(
    cli: Rocsteady, tmp_path: Path, encoding: str
) -> None:
    file = tmp_path / ".env"
    file.write_text("AMD_LOG_LEVEL=3\n", encoding=encoding)
    assert "AMD_LOG_LEVEL" in cli("doctor", "env", str(file)).out


def test_what_is_no_text_is_not_examined(cli: Rocsteady, tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_bytes(b"\x7fELF\0\0AMD_LOG_LEVEL=3\n")
    said = cli("doctor", "env", str(file))
    assert (said.code, "not a text file" in said.err) == (3, True)
