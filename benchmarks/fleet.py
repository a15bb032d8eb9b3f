"""Compare generated machines with planted differences, and count what is missed.

    python benchmarks/fleet.py [MACHINES]

Every machine is the recording of eight MI300X with its own serial numbers, memory in use and free
disk; 5 % of them differ in one thing each. Prints what was missed, what was found and not planted,
and the seconds from files on disk to the report.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BASE = Path(__file__).parents[1] / "tests/machines/mi300x-8.json"
NODES = "/sys/class/kfd/kfd/topology/nodes"
PCI = "/sys/bus/pci/devices"
Files = dict[str, Any]
Plant = Callable[[dict[str, Any]], None]


def base() -> dict[str, Any]:
    """Return the recording with what a live machine of today has as well."""
    machine: dict[str, Any] = json.loads(BASE.read_text(encoding="utf-8"))
    files = machine["files"]
    files["/proc/sys/kernel/numa_balancing"] = "0\n"
    for card in cards(files):
        files[f"{card}/mem_info_vram_used"] = "300000000\n"
        files[f"{card}/ras/umc_err_count"] = "ue: 0\nce: 0\n"
        files[f"{card}/aer_dev_fatal"] = "Undefined 0\nTOTAL_ERR_FATAL 0\n"
        files[f"{card}/aer_dev_nonfatal"] = "Undefined 0\nTOTAL_ERR_NONFATAL 0\n"
        files[f"{card}/fw_version/mec_fw_version"] = "0x000000b4\n"
        files[f"{card}/current_link_width"] = "16\n"
        files[f"{card}/current_link_speed"] = "32.0 GT/s PCIe\n"
    return machine


def cards(files: Files) -> list[str]:
    """Return the PCI folders of the GPUs."""
    return [path.removesuffix("/class") for path, text in files.items() if text == "0x120000\n"]


def set_file(path: str, text: str) -> Plant:
    def plant(machine: dict[str, Any]) -> None:
        machine["files"][path] = text

    return plant


def on_a_card(name: str, text: str) -> Plant:
    def plant(machine: dict[str, Any]) -> None:
        machine["files"][f"{cards(machine['files'])[3]}/{name}"] = text

    return plant


def lose_a_gpu(machine: dict[str, Any]) -> None:
    """Take away the last card, as one that fell off the bus."""
    files = machine["files"]
    card = cards(files)[-1]
    address = card.rpartition("/")[2]
    place = f"location_id {int(address[5:7], 16) << 8}\n"
    node = next(
        path.removesuffix("/properties")
        for path, text in files.items()
        if path.startswith(NODES) and place in str(text)
    )
    gone = (f"{node}/", f"{card}/", f"{PCI}/{address}")
    machine["files"] = {path: text for path, text in files.items() if not path.startswith(gone)}


def set_variable(machine: dict[str, Any]) -> None:
    machine["environment"]["NCCL_P2P_DISABLE"] = "1"


# The fact that must be named, others that must be with it, and how the difference is made.
KERNEL = "/proc/sys/kernel/osrelease"
NUMA = "/proc/sys/kernel/numa_balancing"
PLANTS: dict[str, tuple[frozenset[str], Plant]] = {
    "kernel.version": (frozenset(), set_file(KERNEL, "6.8.0-60-generic\n")),
    "kernel.numa_balancing": (frozenset(), set_file(NUMA, "1\n")),
    "gpu.memory_errors": (frozenset(), on_a_card("ras/umc_err_count", "ue: 3\nce: 7\n")),
    "gpu.link_errors": (frozenset(), on_a_card("aer_dev_fatal", "TOTAL_ERR_FATAL 2\n")),
    "gpu.link_width": (frozenset(), on_a_card("current_link_width", "8\n")),
    "gpu.link_speed": (frozenset(), on_a_card("current_link_speed", "16.0 GT/s PCIe\n")),
    "gpu.firmware": (frozenset(), on_a_card("fw_version/mec_fw_version", "0x000000a0\n")),
    "gpu.address": (frozenset({"gpu.count"}), lose_a_gpu),
    "variable:NCCL_P2P_DISABLE": (frozenset(), set_variable),
}


def write_fleet(folder: Path, machines: int, seed: int = 20261118) -> dict[str, str]:
    """Write recordings; return what was planted in which machine."""
    draw = random.Random(seed)  # noqa: S311 - machines, not secrets
    odd = max(machines // 20, len(PLANTS))
    places = draw.sample(range(machines), odd)
    kinds = [*PLANTS]
    planted = {f"node{place:04}": kinds[at % len(kinds)] for at, place in enumerate(places)}
    text = json.dumps(base())
    for number in range(machines):
        machine = json.loads(text)
        files = machine["files"]
        for card in cards(files):
            files[f"{card}/mem_info_vram_used"] = f"{draw.randrange(3 * 10**8, 10**10)}\n"
            files[f"{card}/ras/umc_err_count"] = f"ue: 0\nce: {draw.randrange(50)}\n"
        for path, content in files.items():
            if path.endswith("/properties") and "unique_id" in str(content):
                lines = str(content).splitlines()
                kept = [line for line in lines if not line.startswith("unique_id")]
                serial = f"unique_id {draw.getrandbits(60) or 1}"
                files[path] = "\n".join([*kept, serial]) + "\n"
        if kind := planted.get(f"node{number:04}"):
            PLANTS[kind][1](machine)
        (folder / f"node{number:04}.json").write_text(json.dumps(machine), encoding="utf-8")
    return planted


def _expected(kind: str | None) -> set[str]:
    return {kind, *PLANTS[kind][0]} if kind else set()


def score(report: dict[str, Any], planted: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return what was missed, and what was found without having been planted."""
    found = {
        machine["name"]: {it["fact"] for it in machine["differences"]}
        for group in report["groups"]
        for machine in group["different"]
    }
    missed = [
        f"{name}: {kind}"
        for name, kind in planted.items()
        if not {kind, *PLANTS[kind][0]} <= found.get(name, set())
    ]
    wrong = [
        f"{name}: {fact}"
        for name, facts in found.items()
        for fact in sorted(facts - _expected(planted.get(name)))
    ]
    rules = [
        f"{name}: rule {rule['rule']}"
        for group in report["groups"]
        for rule in group["partial_rules"]
        for name in rule["machines"]
        if name not in planted
    ]
    return missed, wrong + rules


def main(machines: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        planted = write_fleet(Path(folder), machines)
        files = sorted(str(path) for path in Path(folder).iterdir())
        command = [sys.executable, "-m", "rocsteady", "fleet", "--json", *files]
        before = time.perf_counter()
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        seconds = time.perf_counter() - before
    missed, wrong = score(json.loads(ended.stdout), planted)
    sys.stdout.write(
        f"{machines} machines, {len(planted)} planted differences: {len(missed)} missed,"
        f" {len(wrong)} not planted, {seconds:.1f} s\n"
    )
    sys.stdout.writelines(f"{line}\n" for line in (*missed, *wrong))
    return int(bool(missed or wrong))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
