"""What is run and what is not, and what is kept of what came of it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from rocsteady.model import IntentKind, Observation, ProbeOutcome
from rocsteady.probe.catalog import Probe
from rocsteady.probe.guard import Guard
from rocsteady.probe.runner import ProbeRunner
from rocsteady.probe.suite import (
    MAX_EVIDENCE,
    Planned,
    fewer_than_one_in,
    keep_evidence,
    newest,
    observe,
    plan,
    unknown_names,
)
from rocsteady.store.identity import Identity
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place, find_place
from rocsteady.store.machine_history import Memory

if TYPE_CHECKING:
    from rocsteady.doctor.machine.machine import Machine
    from tests.conftest import Recorded

SOFTWARE = "GPU gfx1100; torch 2.5.1"


def probe(name: str, variant: str = "", **more: object) -> Probe:
    usual: dict[str, object] = {
        "payload": "runtime:import_torch",
        "level": 1,
        "tries": (20, 200, 2000),
        "seconds": (1.0, 10.0, 60.0),
    }
    return Probe(name=name, variant=variant, **{**usual, **more})  # type: ignore[arg-type]


PROBES = (
    probe("import", tries=(1, 1, 1)),
    probe("attention-backward", "flash", gpus=1),
    probe("attention-backward", "math"),
    probe("soft", level=2),
    probe("ranks", "nccl", gpus=2),
)


def seen(title: str, outcome: ProbeOutcome = ProbeOutcome.OK, at: float = 1.0) -> Observation:
    name, _, variant = title.partition(" ")
    return Observation(
        probe=name, variant=variant, outcome=outcome, tries=20, seconds=0.4, at=at,
        software=SOFTWARE,
    )  # fmt: skip


@pytest.fixture
def one_card(recorded: Recorded) -> Machine:
    return recorded.machine("rx7900xtx")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return find_place(tmp_path / "probes", state=tmp_path / "state")


@pytest.fixture
def memory(place: Place) -> Iterator[Memory]:
    memory = Memory(place)
    yield memory
    memory.close()


@pytest.fixture
def runner(place: Place, memory: Memory, tmp_path: Path) -> Iterator[ProbeRunner]:
    """Give a runner without torch; a folder ``fake`` in its path may hold one."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    journal = Journal(place, here=Identity(machine="m", boot_id="b1", process="1:2:3"))
    runner = ProbeRunner(
        sys.executable,
        folder=scratch,
        guard=Guard(journal, memory, SOFTWARE),
        environment={**os.environ, "PYTHONPATH": str(tmp_path / "fake")},
    )
    yield runner
    journal.close()


def fake_torch(tmp_path: Path, source: str) -> None:
    package = tmp_path / "fake" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(source, encoding="utf-8")


def titles(planned: tuple[Planned, ...]) -> list[str]:
    return [each.probe.title for each in planned if not each.why_not]


def test_a_level_runs_what_belongs_to_it_and_says_what_it_cannot(one_card: Machine) -> None:
    planned = plan(PROBES, "1", (), one_card)

    assert titles(planned) == ["import", "attention-backward flash", "attention-backward math"]
    assert {each.probe.title: each.why_not for each in planned if each.why_not} == {
        "ranks nccl": "1 GPU"
    }
    assert [(each.tries, each.seconds) for each in planned[1:2]] == [(20, 1.0)]


def test_deeper_levels_run_more_and_longer(one_card: Machine) -> None:
    two, three = plan(PROBES, "2", (), one_card), plan(PROBES, "3", (), one_card)

    assert "soft" in titles(two)
    assert [each.tries for each in two if each.probe.name == "soft"] == [200]
    assert [each.tries for each in three if each.probe.name == "soft"] == [2000]


def test_what_is_named_is_run_whatever_its_level(one_card: Machine) -> None:
    assert titles(plan(PROBES, "1", ("soft",), one_card)) == ["soft"]
    one = plan(PROBES, "1", ("attention-backward:math",), one_card)
    assert titles(one) == ["attention-backward math"]
    assert unknown_names(PROBES, ("soft", "sofa")) == ("sofa",)


def test_without_a_gpu_what_needs_one_is_not_run(recorded: Recorded) -> None:
    planned = plan(PROBES, "1", (), recorded.machine("no-amd-gpu"))

    assert titles(planned) == ["import", "attention-backward math"]


def test_what_took_the_machine_down_is_not_tried_again_unasked(one_card: Machine) -> None:
    down = seen("attention-backward math", ProbeOutcome.WENT_DOWN, at=2.0)
    name = ("attention-backward:math",)
    before = (seen("attention-backward math"), down)
    since = (down, seen("attention-backward math", at=3.0))

    (held,) = plan(PROBES, "1", name, one_card, observations=before)

    assert held.why_not == "the machine crashed during it; use --again to try it anyway"
    assert titles(plan(PROBES, "1", name, one_card, observations=before, again=True))
    assert titles(plan(PROBES, "1", name, one_card, observations=since))


def test_how_long_it_takes_is_known_from_last_time(one_card: Machine) -> None:
    last, name = (seen("attention-backward math"),), ("attention-backward:math",)

    (first,) = plan(PROBES, "1", name, one_card)
    (second,) = plan(PROBES, "1", name, one_card, observations=last)

    assert (first.about, second.about) == pytest.approx((2.9, 2.3))


def test_a_probe_that_was_under_way_at_another_boot_took_the_machine_down(
    place: Place, memory: Memory
) -> None:
    told = '{"probe":"attention-backward","variant":"flash"}'
    before = Journal(place, here=Identity(machine="m", boot_id="b1", process="1:2:3"))
    before.intend(IntentKind.PROBE, told)
    before.intend(IntentKind.PROBE, '{"probe":"import"}').end()
    before.close()
    journal = Journal(place, here=Identity(machine="m", boot_id="b2", process="1:2:4"))

    guard, told_of = Guard(journal, memory, SOFTWARE), list[str]()
    guard.recover(told_of.append)
    (found,) = guard.observations()

    assert (found.probe, found.variant, found.outcome) == (
        "attention-backward",
        "flash",
        ProbeOutcome.WENT_DOWN,
    )
    guard.recover(told_of.append)
    assert ["the machine went down during attention-backward flash" in it for it in told_of] == [
        True
    ]
    journal.close()


def test_a_probe_that_was_killed_or_interrupted_took_nothing_down(
    place: Place, memory: Memory
) -> None:
    journal = Journal(place)
    guard = Guard(journal, memory, SOFTWARE)
    with contextlib.suppress(KeyboardInterrupt), guard.trying("import", ""):
        guard.recover(pytest.fail)
        assert len(journal.unfinished()) == 1  # under way
        raise KeyboardInterrupt

    assert guard.observations() == ()
    assert journal.unfinished() == ()
    journal.close()


def test_a_bad_probe_is_remembered_with_its_evidence_and_nothing_else_is_left(
    runner: ProbeRunner, memory: Memory, tmp_path: Path
) -> None:
    planned = Planned(probe=PROBES[0], tries=1, seconds=20.0, about=1.0)  # there is no torch here

    observation = observe(planned, runner, tmp_path / "kept")
    left_out = observe(replace(planned, why_not="one GPU"), runner, tmp_path / "kept")
    memory.flush()

    assert observation.outcome is ProbeOutcome.EXCEPTION
    assert observation.why.startswith("ModuleNotFoundError")
    assert memory.observations("m") == (observation,)
    assert Path(observation.evidence).parent == tmp_path / "kept"
    assert (Path(observation.evidence) / "result.json").is_file()
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["site"]
    assert (left_out.outcome, left_out.why) == (ProbeOutcome.NOT_RUN, "one GPU")


STARVED = """
import os, signal, time
core = {min(os.sched_getaffinity(0))}
os.sched_setaffinity(0, core)
others = []
for _ in range(2):
    others.append(os.fork())
    if not others[-1]:
        while True:
            pass
os.nice(19)
end = time.process_time() + 0.04
while time.process_time() < end:
    pass
for pid in others:
    os.kill(pid, signal.SIGKILL)
raise ImportError("it was slow, and is here")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell who waits")
def test_what_has_no_processor_is_not_called_hung(runner: ProbeRunner, tmp_path: Path) -> None:
    fake_torch(tmp_path, STARVED)
    slow = replace(PROBES[0], first=3.0, patience=3.0)

    observation = observe(
        Planned(probe=slow, tries=1, seconds=20.0, about=1.0), runner, tmp_path / "kept"
    )

    assert (observation.outcome, observation.why) == (
        ProbeOutcome.EXCEPTION,
        "ImportError: it was slow, and is here",
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="unconfirmed on Windows")
def test_what_hangs_is_ended_and_where_it_hung_is_kept(
    runner: ProbeRunner, memory: Memory, tmp_path: Path
) -> None:
    fake_torch(tmp_path, "import time\ntime.sleep(600)\n")
    hanging = replace(PROBES[0], first=1.0, patience=1.0)

    observation = observe(
        Planned(probe=hanging, tries=1, seconds=20.0, about=1.0), runner, tmp_path / "kept"
    )
    memory.flush()

    assert observation.outcome is ProbeOutcome.HANG
    assert observation.why.startswith("at try 1, terminated after ")
    assert memory.observations("m") == (observation,)
    kept = [path.name for path in (Path(observation.evidence) / "evidence").iterdir()]
    assert any("stacks" in name for name in kept), kept
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["site"]


def test_of_evidence_the_newest_folders_are_kept(tmp_path: Path) -> None:
    kept = seen("p")
    for number in range(MAX_EVIDENCE + 3):
        folder = tmp_path / "scratch" / f"probe-{number}"
        (folder / "evidence").mkdir(parents=True)
        bad = replace(seen("p", ProbeOutcome.HANG, at=1e9 + number * 60))
        kept = keep_evidence(replace(bad, evidence=str(folder / "evidence")), tmp_path / "kept")
        assert (Path(kept.evidence) / "evidence").is_dir()

    assert len(list((tmp_path / "kept").iterdir())) == MAX_EVIDENCE
    assert Path(kept.evidence).is_dir()
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("tries", "one_in"), [(0, 1), (1, 1), (4, 1), (5, 2), (20, 7), (200, 67), (2000, 668)]
)
def test_without_a_failure_the_bound_is_about_a_third_of_the_tries(tries: int, one_in: int) -> None:
    assert fewer_than_one_in(tries) == one_in
    if tries:  # at a rate of 1 in M and above, so many tries without a failure are that rare
        assert (1 - 1 / one_in) ** tries <= 0.05


def test_the_newest_of_each_counts() -> None:
    last = seen("a b", at=2.0)

    assert newest([last, seen("a b", ProbeOutcome.CRASH, at=1.0)]) == {"a b": last}
