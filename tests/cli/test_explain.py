"""Exit codes, sources of text and output of ``rocsteady explain``, seen from outside."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady.cli import explain
from rocsteady.failures.remedy import load_remedies
from rocsteady.screens.explain import workaround_page
from rocsteady.screens.screen import Page

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady

FAULT = "Memory access fault by GPU node-1 (Agent handle: 0x5) on address 0x7f. Reason: Unknown."


def test_a_line_is_named_and_explained(cli: Rocsteady) -> None:
    told = cli("explain", "Unable to open /dev/kfd read-write: Permission denied")

    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("no-access-to-gpu\nNo permission to open the GPU.\n")
    assert "  Unable to open /dev/kfd read-write: Permission denied\n" in told.out
    assert "    sudo usermod -aG render,video $USER\n" in told.out
    assert "Needs: sudo, relogin." in told.out
    assert "AMD: Linux install prerequisites" in told.out
    assert "unverified on hardware" in told.out


def test_what_the_doctor_names_can_be_asked_for_here_too(cli: Rocsteady) -> None:
    rule, gpu = cli("explain", "igpu-visible"), cli("explain", "gfx1201")

    assert (rule.code, gpu.code) == (0, 0)
    assert "rdna4-training-faults" in gpu.out
    told = json.loads(cli("explain", "gfx1201", "--json").out)
    assert told["gpu"]["gfx"] == "gfx1201"
    assert "igpu-visible" in cli("explain", "igpu-visble").err


def test_what_has_no_name_is_1_and_says_so(cli: Rocsteady) -> None:
    told = cli("explain", "all is well")

    assert (told.code, told.err) == (1, "")
    assert told.out.startswith("No known failure was found in this text.\n")


def test_a_file_is_read_if_there_is_one_of_that_name(cli: Rocsteady, tmp_path: Path) -> None:
    (tmp_path / "out.log").write_bytes(b"\xff\xfe progress\r\n" * 1000 + FAULT.encode() + b"\n")

    told = cli("explain", "out.log")

    assert told.code == 0
    assert told.out.startswith("memory-access-fault\n")


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_failure_is_named_under_100_000_lines_of_others(
    cli: Rocsteady, tmp_path: Path, share: float
) -> None:
    lines = [f"step {number} loss 0.{number % 1000:03d} 2.4it/s" for number in range(100_000)]
    lines.insert(int(share * len(lines)), FAULT)
    (tmp_path / "out.log").write_text("\n".join(lines))

    text, told = cli("explain", "out.log"), json.loads(cli("explain", "out.log", "--json").out)

    assert text.code == 0
    assert text.out.startswith("memory-access-fault")
    assert told["failure"]["kind"] == "memory-access-fault"
    assert told["recovered"] is (share < 1)
    assert ("shows progress after this failure" in text.out) is (share < 1)
    assert told["failure"]["certainty"] == ("likely" if share < 1 else "certain")


def test_the_end_of_a_large_file_is_what_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "out.log"
    log.write_bytes(b"HIP error: invalid device function\n" + FAULT.encode())
    monkeypatch.setattr(explain, "MAX_BYTES", len(FAULT))  # 32 MiB would take its time
    monkeypatch.setattr(explain, "PIECE_BYTES", 7)

    assert explain._given(str(log)) == FAULT
    with log.open("rb") as stream:
        assert explain._end_of(stream) == FAULT


def test_a_text_can_be_piped_in(cli: Rocsteady) -> None:
    done = subprocess.run(
        cli.line("explain", "-"),
        input=f"loading\n{FAULT}\nAborted (core dumped)\n".encode(),
        capture_output=True,
        check=False,
        timeout=30,
        env=cli.environment,
        cwd=cli.folder,
    )

    assert done.returncode == 0
    assert b"Also seen: abort." in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes of this kind")
def test_a_file_that_is_a_pipe_is_read_too(cli: Rocsteady) -> None:
    read, write = os.pipe()
    os.write(write, FAULT.encode())
    os.close(write)
    try:
        done = subprocess.run(
            cli.line("explain", f"/dev/fd/{read}"),
            capture_output=True,
            check=False,
            timeout=30,
            env=cli.environment,
            pass_fds=(read,),
        )
    finally:
        os.close(read)

    assert done.stdout.startswith(b"memory-access-fault\n")


def test_json_is_all_that_goes_to_stdout(cli: Rocsteady) -> None:
    told = cli("explain", "--json", "RuntimeError: DataLoader timed out after 120 seconds")

    known = json.loads(told.out)
    assert (told.code, told.err) == (0, "")
    assert known["version"] == 1
    assert known["failure"]["kind"] == known["known"]["id"] == "loader-timeout"
    assert known["known"]["nature"] == "either"


def test_json_of_what_has_no_name(cli: Rocsteady) -> None:
    told = cli("explain", "--json", "all is well")

    assert told.code == 1
    assert json.loads(told.out)["failure"]["certainty"] == "unknown"


def test_a_description_without_a_message_is_guessed_at(cli: Rocsteady) -> None:
    described = "training freezes with num_workers>0"
    told, known = cli("explain", described), json.loads(cli("explain", "--json", described).out)

    assert told.code == 1  # nothing was identified
    assert "this is a guess:\n  hang-in-loader  Hung waiting for data." in told.out
    assert "To read about the first: rocsteady explain hang-in-loader\n" in told.out
    assert told.out.endswith("While it hangs, this finds the line: rocsteady watch --pid\n")
    assert known["failure"]["kind"] == "unknown"
    assert known["guesses"][0] == {"id": "hang-in-loader", "title": "Hung waiting for data"}


def test_a_text_too_long_for_a_name_is_a_text(cli: Rocsteady) -> None:
    assert cli("explain", f"{FAULT} {'x' * 5000}").out.startswith("memory-access-fault\n")


def test_no_line_of_ours_is_wider_than_80(cli: Rocsteady) -> None:
    out = cli("explain", FAULT).out

    ours = [line for line in out.splitlines() if FAULT not in line]
    assert max(map(len, ours)) <= 80
    assert "\x1b" not in out


def test_control_characters_of_the_text_do_not_reach_the_terminal(cli: Rocsteady) -> None:
    out = cli("explain", f"\x1b]0;title\x07\x9b31m{FAULT}\x08\x08").out

    assert out.startswith("memory-access-fault\n")
    assert all(mark.isprintable() or mark == "\n" for mark in out)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no FIFOs in folders")
def test_a_fifo_in_the_place_of_a_log_is_refused_at_once(cli: Rocsteady, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.log")

    ended = cli("explain", str(tmp_path / "train.log"))

    assert (ended.code, ended.out) == (3, "")
    assert "not a regular file" in ended.err


WARNINGS = {
    "ROCk module is NOT loaded, possibly no GPU devices": "rock-module-not-loaded",
    "UserWarning: 1Torch was not compiled with flash attention.": "no-flash-attention",
    "Mem Efficient attention on Current AMD GPU is still experimental.": "attention-experimental",
    "expandable_segments not supported on this platform": "expandable-segments-ignored",
    "Attempting to use hipBLASLt on an unsupported architecture!": "hipblaslt-not-for-this-gpu",
    "HSA Error:  Incompatible kernel and userspace, Vega 20 disabled.": "driver-older-than-runtime",
    'NCCL WARN Missing "iommu=pt" from kernel command line': "iommu-not-passthrough",
    "RuntimeError: Configured ROCm binary not found at /x.so": "bitsandbytes-has-no-library",
    "Flash attention on Navi31 GPU is still experimental.": "attention-experimental",
    "/opt/amdgpu/share/libdrm/amdgpu.ids: No such file or directory": "amdgpu-ids-missing",
    "UserWarning: Can't initialize amdsmi - Error code: 34": "amdsmi-not-started",
    "MIOpen(HIP): Warning [IsEnoughWorkspace] [EvaluateInvokers]": "miopen-small-workspace",
}


@pytest.mark.parametrize("line", WARNINGS)
def test_a_common_line_that_is_no_failure_is_explained(cli: Rocsteady, line: str) -> None:
    told = cli("explain", line)

    assert told.code == 0
    assert told.out.startswith(f"{WARNINGS[line]}  not a failure by itself\n")
    assert f"  {line}\n" in told.out
    assert "What to do" in told.out
    assert json.loads(cli("explain", line, "--json").out)["message"]["id"] == WARNINGS[line]


def test_a_failure_is_named_before_a_warning_beside_it(cli: Rocsteady, tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(f"{next(iter(WARNINGS))}\n{FAULT}\n")

    assert cli("explain", "out.log").out.startswith("memory-access-fault\n")


WINDOWS = {
    "RuntimeError: Distributed package doesn't have NCCL built in": (
        "no-nccl-backend",
        "gloo",
    ),
    "OSError: [WinError 126] The specified module could not be found.": (
        "missing-dll",
        "Visual C++",
    ),
    "AssertionError: Torch not compiled with CUDA enabled": (
        "torch-without-gpu-support",
        "rocsteady wheels",
    ),
}


@pytest.mark.parametrize("line", WINDOWS)
def test_what_windows_says_gets_advice_for_windows(cli: Rocsteady, line: str) -> None:
    kind, advice = WINDOWS[line]
    told = cli("explain", line)

    assert told.out.startswith(f"{kind}\n")
    assert advice in told.out
    assert "LD_LIBRARY_PATH" not in told.out
    assert "On Windows, in PowerShell:" in told.out


@pytest.mark.parametrize("remedy", sorted(load_remedies()))
def test_a_page_has_all_that_is_known_of_a_remedy_in_80_columns(remedy: str) -> None:
    about = load_remedies()[remedy]

    page = workaround_page(about, Page(80, colour=False))

    words = " ".join(page.split())
    assert all(text in words for text in (about.cost, about.when_not, *about.sources))
    assert max(map(len, page.splitlines())) <= 80


def test_json_has_all_of_a_remedy(cli: Rocsteady) -> None:
    told = json.loads(cli("explain", "--json", "cpu").out)["workaround"]

    assert (told["id"], told["answers"]) == ("cpu", [*load_remedies()["cpu"].answers])
    assert told["sources"]


def test_the_variables_that_would_be_unset_are_explained_too(cli: Rocsteady) -> None:
    told = cli("explain", "unset-variable")

    assert "  PYTORCH_NO_HIP_MEMORY_CACHING\n" in told.out


@pytest.mark.parametrize(
    ("machine", "causes", "steps"),
    [
        ("rx9060xt", {"rdna4-training-faults"}, 4),  # and not the step for Strix Halo
        ("rx7900xtx", set(), 4),  # nor the one for RX 9000 cards, but one of its own
        ("strix-halo-before", {"gfx1151-kernel", "mes-firmware-broken"}, 4),
    ],
)
def test_why_on_this_machine_and_only_what_is_for_its_gpu(
    cli: Rocsteady, machine: str, causes: set[str], steps: int
) -> None:
    text = (
        "Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f. Reason: Unknown."
    )
    root = ("--root", cli.machine(machine))

    known = json.loads(cli("explain", "--json", text, *root).out)
    page = cli("explain", text, *root).out

    assert {each["rule"] for each in known["here"]} == causes
    assert f"\n  {steps}. " in page
    assert f"\n  {steps + 1}. " not in page
    assert all(cause in page for cause in causes)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("one", "two"), "two"),
        ((".",), "is a folder"),
        (("--no-such-option", "x"), "--no-such-option"),
        (("hang", "--root", "nowhere.json"), "nowhere.json"),
        (("cpu", "--root", "."), "need an error message"),
        ((), "TEXT"),
    ],
)
def test_wrong_usage_is_2(cli: Rocsteady, arguments: tuple[str, ...], said: str) -> None:
    ended = cli("explain", *arguments)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_failure_is_explained_by_its_id_and_names_its_workarounds(cli: Rocsteady) -> None:
    told = json.loads(cli("explain", "--json", "hang-in-loader").out)

    assert told["failure"]["kind"] == "hang-in-loader"
    assert "loader-inline" in told["workarounds"]
    assert "loader-inline" in cli("explain", "hang-in-loader").out
    assert json.loads(cli("explain", "--json", "disk-full").out)["workarounds"] == []
