from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from rocsteady.model import Observation, ProbeOutcome, Strategy
from rocsteady.store.identity import machine_fingerprint, script_fingerprint, this_process
from rocsteady.store.location import Place
from rocsteady.store.machine_history import MAX_OBSERVATIONS, Memory, memory_to_read
from rocsteady.store.values import (
    Deadly,
    Helped,
    LearnedRecord,
    PhaseHistory,
    Stays,
)
from rocsteady.system.disk_root import DiskRoot

PHASES = PhaseHistory(
    phases={"data": Stays(longest=0.9, histogram=(0, 3, 2))}, device_wait=3.0, locked_wait=0.5
)


def test_what_a_script_usually_does_is_remembered_for_this_machine(place: Place) -> None:
    memory = Memory(place, clock=lambda: 5.0)
    memory.learn("script", "machine", PHASES)
    memory.flush()
    known = memory.learned("script", "machine")
    assert known is not None
    memory.learn("script", "machine", known)  # after an attempt that showed nothing new
    memory.close()
    again = Memory(place)

    learned = LearnedRecord(**asdict(PHASES), script="script", machine="machine", at=5.0)
    assert again.learned("script", "machine") == learned
    assert again.learned("script", "another") is None
    again.close()


def test_what_helped_and_what_was_deadly_is_remembered_for_script_and_machine(place: Place) -> None:
    deadly = Deadly(machine="m", script="s", strategy=Strategy(workers=0), command="python", at=1.0)
    as_it_is = Deadly(machine="m", script="s", strategy=Strategy(), command="python", at=2.0)
    helped = Helped(
        machine="m", script="s", failure="hang-in-loader", remedy="loader-inline", run="r", at=3.0
    )
    memory = Memory(place)
    for _ in range(2):
        memory.killed(deadly)
    memory.killed(as_it_is)
    memory.helped(replace(helped, remedy="loader-spawn", at=1.0))
    memory.helped(helped)
    memory.close()

    assert memory.deadly("m", "s") == (deadly, as_it_is)
    assert memory.deadly("m", "another") == ()
    assert memory.what_helped("m", "s") == (helped,)
    assert memory.what_helped("n", "s") == ()


def test_without_a_place_everything_works_and_nothing_is_remembered(place: Place) -> None:
    memory = Memory(replace(place, memory=None, memory_writable=False))

    memory.learn("script", "machine", PHASES)

    assert not memory.keeps
    assert memory.learned("script", "machine") is None
    assert memory.close()


def test_a_memory_that_cannot_be_written_is_still_read(place: Place) -> None:
    memory = Memory(place)
    memory.learn("script", "machine", PHASES)
    memory.close()

    frozen = Memory(replace(place, memory_writable=False))
    frozen.learn("script", "machine", PhaseHistory())

    learned = frozen.learned("script", "machine")
    assert learned is not None
    assert learned.phases == PHASES.phases


def test_a_broken_memory_is_no_memory(place: Place) -> None:
    assert place.memory is not None
    place.memory.write_bytes(b"broken" * 1000)
    memory = Memory(place)

    assert memory.learned("x", "machine") is None
    memory.learn("x", "machine", PHASES)
    assert memory.close()
    assert memory.learned("x", "machine") is not None


def test_other_arguments_or_another_folder_are_another_script() -> None:
    prints = {
        script_fingerprint(("python", "train.py"), "/p"),
        script_fingerprint(("python", "train.py", "--batch", "64"), "/p"),
        script_fingerprint(("python", "train.py"), "/q"),
        script_fingerprint(("pythontrain.py",), "/p"),
        script_fingerprint(("python", "\udce9.py"), "/p"),
    }

    assert len(prints) == 5


def machine(root: Path, files: dict[str, str]) -> DiskRoot:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return DiskRoot(root)


def test_machines_are_told_apart_by_their_gpus_first(tmp_path: Path) -> None:
    kfd, number = "sys/class/kfd/kfd/topology/nodes/1/properties", "etc/machine-id"
    a = machine(tmp_path / "a", {kfd: "simd_count 1\nunique_id 77\n", number: "x"})
    b = machine(tmp_path / "b", {kfd: "simd_count 1\nunique_id 77\n", number: "y"})
    c = machine(tmp_path / "c", {kfd: "unique_id 0\n", number: "x"})
    d = machine(tmp_path / "d", {number: "x"})

    assert machine_fingerprint(a) == machine_fingerprint(b)  # the same cards, another container
    assert machine_fingerprint(c) == machine_fingerprint(d) != machine_fingerprint(a)


@pytest.mark.skipif(sys.platform != "linux", reason="boot ids are Linux's")
def test_this_process_knows_its_boot_and_its_birth() -> None:
    here = this_process()

    assert len(here.boot_id) == 36
    space, number, birth = here.process.split(":")
    assert all(part.isdecimal() for part in (space, number, birth))


def test_what_came_of_probes_is_remembered_with_all_that_was_seen(place: Place) -> None:
    flash = Observation(
        probe="attention-backward",
        variant="flash",
        outcome=ProbeOutcome.HANG,
        tries=0,
        seconds=10.5,
        why="at try 1, ended after 10 s",
        figures={"a": 1.5},
        software="GPU gfx1100; torch 2.9.1",
        at=2.0,
    )
    math = replace(flash, variant="math", outcome=ProbeOutcome.OK, tries=200, at=1.0)
    memory = Memory(place)
    for observation in (flash, math):
        memory.observed("m", observation)
    memory.close()

    assert memory.observations("m") == (math, flash)
    assert memory.observations("another") == ()


def test_of_very_many_observations_the_newest_are_kept(place: Place) -> None:
    memory = Memory(place)
    for at in range(MAX_OBSERVATIONS + 7):
        seen = Observation(probe="p", outcome=ProbeOutcome.OK, tries=1, seconds=0.0, at=float(at))
        memory.observed("m", seen)
    memory.flush(timedelta(seconds=20))
    memory.close()

    kept = [observation.at for observation in memory.observations("m")]
    assert kept == [float(at) for at in range(7, MAX_OBSERVATIONS + 7)]


def test_to_read_the_memory_makes_nothing(tmp_path: Path, place: Place) -> None:
    memory = Memory(place)
    seen = Observation(probe="p", outcome=ProbeOutcome.OK, tries=1, seconds=0.0, at=1.0)
    memory.observed("m", seen)
    memory.close()

    assert memory_to_read(tmp_path / "state").observations("m") == (seen,)
    assert memory_to_read(tmp_path / "nowhere").observations("m") == ()
    assert not (tmp_path / "nowhere").exists()
