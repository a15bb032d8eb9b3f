"""``fleet``: planted differences are found, and nothing else is."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge
from rocsteady.doctor.fleet import fleet_report
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.doctor.machine.recording import RecordedRoot, read_recording

MACHINES = Path(__file__).parents[1] / "machines"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks/fleet.py"
    spec = importlib.util.spec_from_file_location("fleet_benchmark", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fleet(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocsteady", "fleet", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def report(*files: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(fleet_report(files, doctors_knowledge()))
    return found


def test_every_planted_difference_is_found_and_nothing_else(
    tmp_path: Path, generator: ModuleType
) -> None:
    planted = generator.write_fleet(tmp_path, 40)

    found = report(*sorted(tmp_path.iterdir()))

    assert generator.score(found, planted) == ([], [])
    [group] = found["groups"]
    assert len(group["matching"]) == 40 - len(planted)
    assert {rule["rule"] for rule in group["partial_rules"]} >= {
        "numa-balancing-on",
        "p2p-switched-off",
    }


def test_the_table_names_the_machine_and_the_difference(
    tmp_path: Path, generator: ModuleType
) -> None:
    generator.write_fleet(tmp_path, 12)

    ended = fleet(*sorted(tmp_path.iterdir()))

    assert ended.returncode == 1
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("12 machines. 3 match: 8 x ")
    assert any("GPUs 7 (others 8); GPU at 0000:e5:00.0 missing" in line for line in lines)


def test_long_lists_are_counted_and_facts_have_names_that_people_use() -> None:
    ended = fleet(*(MACHINES / f"{it}.json" for it in ("mi300x-8", "mi300x-cpx")))

    assert "0000:05:00.3 and 52 more" in " ".join(ended.stdout.split())
    assert "gib" not in ended.stdout


def test_kinds_of_machines_are_groups_of_their_own() -> None:
    names = ("mi300x-8", "mi210-8", "rx7900xtx")

    found = report(*(MACHINES / f"{name}.json" for name in names))

    assert [group["machines"] for group in found["groups"]] == [(name,) for name in names]
    assert not any(group["different"] for group in found["groups"])


def test_a_machine_without_any_gpu_is_compared_with_the_others(
    tmp_path: Path, generator: ModuleType
) -> None:
    generator.write_fleet(tmp_path, 30)
    lost = json.loads((tmp_path / "node0029.json").read_text())
    kfd = "/sys/class/kfd"
    lost["files"] = {it: text for it, text in lost["files"].items() if not it.startswith(kfd)}
    (tmp_path / "node0029.json").write_text(json.dumps(lost))

    found = report(*sorted(tmp_path.iterdir()))

    [group] = found["groups"]
    facts = {
        it["fact"]
        for machine in group["different"]
        if machine["name"] == "node0029"
        for it in machine["differences"]
    }
    assert {"gpu.count", "gpu.address"} <= facts


def test_facts_are_read_as_recordings_are_and_other_files_are_named(tmp_path: Path) -> None:
    recording = MACHINES / "rx7900xtx.json"
    machine, _ = examine(RecordedRoot(read_recording(recording)), doctors_knowledge().variables)
    facts = tmp_path / "facts.json"
    facts.write_bytes(msgspec.json.encode(machine))
    broken = tmp_path / "broken.json"
    broken.write_text("{}")

    ended = fleet("--json", recording, facts, broken)

    found = json.loads(ended.stdout)
    assert ended.returncode == 3
    assert [it["file"] for it in found["unreadable"]] == [str(broken)]
    [group] = found["groups"]
    assert group["matching"] == ["rx7900xtx", "facts"]


def with_files(**files: str) -> Machine:
    recorded = json.loads((MACHINES / "mi300x-8.json").read_text())
    card = "/sys/devices/pci0000:00/0000:00:01.1/0000:05:00.0"
    for name, text in files.items():
        recorded["files"][name.replace("CARD", card)] = text
    recording = msgspec.json.decode(
        json.dumps(recorded), type=type(read_recording(MACHINES / "mi300x-8.json"))
    )
    machine, _ = examine(RecordedRoot(recording), doctors_knowledge().variables)
    return machine


def test_what_the_driver_counts_and_who_uses_a_gpu_are_facts() -> None:
    nodes, proc = "/sys/class/kfd/kfd/topology/nodes", "/sys/class/kfd/kfd/proc"
    recorded = json.loads((MACHINES / "mi300x-8.json").read_text())["files"]
    gpu_id = recorded[f"{nodes}/2/gpu_id"].strip()
    machine = with_files(
        **{
            "CARD/ras/umc_err_count": "ue: 2\nce: 5\n",
            "CARD/ras/gfx_err_count": "ue: 1\nce: 0\n",
            "CARD/ras/features": "feature mask: 0x1\n",
            "CARD/aer_dev_fatal": "Undefined 0\nTOTAL_ERR_FATAL 1\n",
            "CARD/aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 2\n",
            "CARD/mem_info_vram_used": f"{4 << 30}\n",
            f"{nodes}/2/io_links/0/properties": "type 11\nnode_to 3\n",
            f"{nodes}/2/io_links/1/properties": "type 2\nnode_to 0\n",
            f"{proc}/4410/vram_{gpu_id}": f"{3 << 30}\n",
            f"{proc}/4410/vram_1": "99\n",
            f"{proc}/4411/vram_{gpu_id}": "0\n",
        }
    )

    gpu = machine.gpus.gpus[0]

    assert (gpu.uncorrected_errors, gpu.link_errors) == (3, 3)
    assert (gpu.xgmi_peers, gpu.used_bytes) == (1, 4 << 30)
    [user] = machine.gpus.users
    assert (user.pid, user.node, user.used_bytes) == (4410, 2, 3 << 30)
    assert machine.gpus.gpus[1].uncorrected_errors is None
    [use] = diagnose(machine, doctors_knowledge()).machine.gpu_use
    assert use.startswith("GPU 0: ")
    assert "pid 4410" in use
