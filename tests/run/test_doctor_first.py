"""What ``run`` says of the machine before the first attempt, and when that stops it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

if os.name == "nt":
    pytest.skip("real runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from supervised import Project

ROOT = Path(__file__).parents[2]
ON_MACHINE = ROOT / "examples" / "stories" / "on_machine.py"
BLOCKED, AT_RISK = "rx5700xt-override", "rx7900xt-pair"
TRAINS = """
    import pathlib, sys
    pathlib.Path("ran").touch()
    for step in range(1, 31): print(f"step {step}/30 loss 0.5", flush=True)
    sys.exit("--fail" in sys.argv)
"""


def on(project: Project, machine: str) -> Project:
    recording = ROOT / "tests" / "machines" / f"{machine}.json"
    project.program = (sys.executable, str(ON_MACHINE), str(recording))
    project.script(TRAINS)
    return project


def words(*more: str) -> tuple[str, ...]:
    return ("--", sys.executable, "train.py", *more)


def test_what_blocks_the_gpu_stops_a_run_before_it_starts(project: Project) -> None:
    ended = on(project, BLOCKED).run(*words())

    assert ended.code == 76
    assert not (project.folder / "ran").exists()
    assert project.line() == {}  # there is no run
    told = ended.err
    assert "(override-across-families)" in told
    assert "(wheel-lacks-arch)" in told
    fixes = told.partition("Do this, in order:\n")[2].splitlines()
    assert fixes[0] == "  unset HSA_OVERRIDE_GFX_VERSION"
    assert len(fixes) == len(set(fixes))
    assert fixes[-1] == f"To start anyway: rocsteady run --anyway -- {' '.join(words()[1:])}"


def test_nothing_is_started_in_the_background_either(project: Project) -> None:
    ended = on(project, BLOCKED).run("--detach", *words())

    assert (ended.code, (project.folder / "ran").exists()) == (76, False)


@pytest.mark.parametrize(
    "chosen",
    [
        ("--anyway", *words()),
        ("--observe", *words()),
        ("--with", "cpu", *words()),
        words("--device", "cpu"),
        words("--device=cpu"),
    ],
    ids=["anyway", "observe", "with-cpu", "device-cpu", "device=cpu"],
)
def test_a_choice_of_the_users_is_heeded(project: Project, chosen: tuple[str, ...]) -> None:
    ended = on(project, BLOCKED).run(*chosen)

    assert ended.code == 0, ended.err
    warned = [line for line in ended.said if line.startswith("the doctor warns of ")]
    assert (
        warned
        == [
            (
                "the doctor warns of override-across-families, wheel-lacks-arch,"
                " serialisation-left-on. To see why: rocsteady doctor"
            )
        ]
        or len(warned) == 1
    )


def test_what_has_trained_here_before_is_not_stopped(project: Project) -> None:
    first = on(project, BLOCKED).run("--anyway", *words("--fail"), name="first")
    again = project.run("--resume", "never", *words("--fail"), name="again")
    resumed = project.run("--resume", "again")

    assert (first.code, again.code) == (1, 1)
    assert project.line("again")["step"] == 30
    assert "the doctor warns of" in again.err
    assert "the doctor" not in resumed.err


def test_risks_are_one_line_and_stop_nothing(project: Project) -> None:
    ended = on(project, AT_RISK).run(*words())

    assert ended.code == 0, ended.err
    assert [line for line in ended.said if "doctor" in line] == [
        "the doctor warns of iommu-not-passthrough, pcie-links-uneven. To see why: rocsteady doctor"
    ]


def test_a_torch_that_uses_no_gpu_anyway_stops_nothing(project: Project) -> None:
    ended = on(project, "cpu-wheel").run(*words())

    assert ended.code == 0, ended.err
    assert "the doctor warns of" in ended.err


@pytest.mark.parametrize("machine", ["no-amd-gpu", "nvidia-card"])
def test_without_an_amd_gpu_nothing_is_said(project: Project, machine: str) -> None:
    ended = on(project, machine).run(*words())

    assert ended.code == 0, ended.err
    assert "doctor" not in ended.err
