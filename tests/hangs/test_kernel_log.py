"""The kernel's words since a moment, from the source that may be read; or why from none."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.hangs.looking.kernel_log import KernelLog, parse_records, read_kernel_log

SOON = timedelta(seconds=5)
RESET = "amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=3, emitted seq=5"
KMSG = f"""6,1,1000000,-;Linux version 6.18
3,2,50000000,-;{RESET}
 SUBSYSTEM=pci
 DEVICE=+pci:0000:03:00.0
4,3,60000000,c,caller=T1;continued
"""


def test_only_lines_since_the_moment_are_given(tmp_path: Path) -> None:
    kmsg = tmp_path / "kmsg"
    kmsg.write_text(KMSG)

    assert read_kernel_log(45.0, within=SOON, kmsg=kmsg) == KernelLog(
        source=str(kmsg),
        lines=(f"[   50.000000] {RESET}", "[   60.000000] continued"),
    )


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg may not be read here")
def test_the_kernel_of_this_machine_has_spoken() -> None:
    log = read_kernel_log(0.0, within=SOON)

    assert (log.source, log.why_not) == ("/dev/kmsg", "")
    assert log.lines


@pytest.mark.skipif(not os.access("/dev/kmsg", os.W_OK), reason="/dev/kmsg may not be written here")
def test_what_the_kernel_says_now_is_there() -> None:
    since = time.monotonic()
    word = f"rocsteady test {os.getpid()} {since}"
    Path("/dev/kmsg").write_text(f"{word}\n")  # without its end it waits for more

    lines = read_kernel_log(since, within=SOON).lines

    assert any(word in line for line in lines)


def journal(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "journalctl"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_the_journal_is_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = f"echo '[    1.000000] kernel: Linux'; echo '[   50.500000] kernel: {RESET}'"
    journal(tmp_path, lines, monkeypatch)

    log = read_kernel_log(45.0, within=SOON, kmsg=tmp_path / "none")

    assert log == KernelLog(source="journalctl", lines=(f"[   50.500000] {RESET}",))


@pytest.mark.parametrize(
    ("answer", "why"),
    [("true", "journalctl shows no kernel messages"), ("sleep 9", "did not answer")],
)
def test_an_empty_or_late_journal_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, why: str
) -> None:
    journal(tmp_path, answer, monkeypatch)

    log = read_kernel_log(0.0, within=timedelta(seconds=0.5), kmsg=tmp_path / "none")

    assert (log.source, log.lines) == ("", ())
    assert why in log.why_not
    assert "No such file" in log.why_not


def test_no_journal_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    log = read_kernel_log(0.0, within=SOON, kmsg=tmp_path / "none")

    assert "there is no journalctl" in log.why_not


@given(st.text())
def test_any_record_is_read_or_passed_over(text: str) -> None:
    assert all(at >= 0 for at, _ in parse_records(text))
