"""Whose line of the kernel log it is: a process of the attempt, or a GPU that it used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocsteady.hangs.looking.kernel_log import concerning
from rocsteady.hangs.looking.process_tree import MemberCollector, Members, gpu_addresses

OURS = Members(
    ids=frozenset({4711, 4712}),
    gpus=frozenset({"0000:03:00"}),
    all_gpus=frozenset({"0000:03:00", "0000:0b:00"}),
)
ALL_GPUS = Members(gpus=OURS.gpus, all_gpus=OURS.gpus)
NO_GPU = Members(ids=OURS.ids, all_gpus=OURS.all_gpus)
OF_US = (
    "[  5.1] python3[4712]: segfault at 0 ip 00007f9a sp 00007ffd error 4 in libamdhip64.so.6",
    "[  5.1] traps: pt_main_thread[4711] general protection fault ip:7f1a sp:7ffd error:0",
    "[  5.1] Out of memory: Killed process 4711 (python) total-vm:123456kB, anon-rss:98765kB",
    "[  5.1] oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/x,task=python,pid=4711,uid=0",
    "[  5.1] INFO: task python3:4711 blocked for more than 122 seconds.",
    "[  5.1] amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
    "[  5.1] pcieport 0000:00:01.1: AER: Uncorrected (Fatal) error received: 0000:03:00.0",
    "[  5.1] mce: [Hardware Error]: CPU 9: Machine Check: 0 Bank 5: bea0000000000108",
)
OF_OTHERS = (
    "[  5.1] python3[9999]: segfault at 0 ip 00007f9a sp 00007ffd error 4 in libc.so.6",
    "[  5.1] Out of memory: Killed process 9999 (chrome) total-vm:123456kB, anon-rss:98765kB",
    "[  5.1] python invoked oom-killer: gfp_mask=0xcc0, order=0",
    "[  5.1] amdgpu 0000:0b:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=3, emitted seq=5",
    "[  5.1] pcieport 0000:00:03.0: AER: Uncorrected (Fatal) error received: 0000:44:00.0",
    "[  5.1] NVRM: Xid (PCI:0000:65:00): 48, pid=9999, name=python, DBE",
)
NO_ADDRESS = "[  5.1] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=1"


def test_a_line_counts_by_its_process_or_by_a_gpu_that_was_used() -> None:
    assert concerning((*OF_OTHERS, *OF_US), OURS) == OF_US


def test_without_a_gpu_no_line_about_one_counts() -> None:
    assert concerning((OF_US[5], NO_ADDRESS), NO_GPU) == ()


def test_a_line_about_some_gpu_counts_if_all_of_them_were_used() -> None:
    assert concerning((NO_ADDRESS,), ALL_GPUS) == (NO_ADDRESS,)
    assert concerning((NO_ADDRESS,), OURS) == ()


def lay_out_kfd(root: Path) -> None:
    """Two cards; process 77 has a queue on the second one."""
    for node, (gpu_id, location) in {0: (0, 0), 1: (51, 0x300), 2: (52, 0xB00)}.items():
        folder = root / f"sys/class/kfd/kfd/topology/nodes/{node}"
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(f"{gpu_id}\n")
        (folder / "properties").write_text(f"location_id {location}\ndomain 0\n")
    queue = root / f"sys/class/kfd/kfd/proc/{os.getpid()}/queues/1"
    queue.mkdir(parents=True)
    (queue / "gpuid").write_text("52\n")


def test_the_gpus_of_an_attempt_are_those_that_it_has_queues_on(tmp_path: Path) -> None:
    lay_out_kfd(tmp_path)
    collector = MemberCollector(0.0, tmp_path)

    collector.poll(lambda: (os.getpid(),), 100.0)

    assert gpu_addresses(tmp_path) == {51: "0000:03:00", 52: "0000:0b:00"}
    assert collector.members().gpus == {"0000:0b:00"}


def test_a_gpu_is_free_that_nobody_has_a_queue_on_unless_the_attempt_used_one(
    tmp_path: Path,
) -> None:
    lay_out_kfd(tmp_path)
    collector = MemberCollector(0.0, tmp_path)

    assert collector.free_gpus() == {"0000:03:00"}
    collector.poll(lambda: (os.getpid(),), 100.0)
    assert collector.free_gpus() == frozenset()
    assert MemberCollector(0.0, tmp_path / "no GPU").free_gpus() == frozenset()


@pytest.mark.skipif(os.name == "nt", reason="processes cannot be listed on native Windows")
def test_threads_are_members_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rocsteady.hangs.looking.process_tree._has_the_kernels_numbers", lambda: True
    )
    code = "import threading; threading.Thread(target=input).start(); print(flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        child.stdout.readline()
        collector = MemberCollector(0.0)
        collector.poll(lambda: (child.pid,), 100.0)
        threads = {int(path.name) for path in Path(f"/proc/{child.pid}/task").iterdir()}
        child.communicate(b"\n")

    assert len(threads) == 2
    assert threads <= collector.members().ids


def test_in_a_container_numbers_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rocsteady.hangs.looking.process_tree._has_the_kernels_numbers", lambda: False
    )
    collector = MemberCollector(0.0)

    collector.poll(lambda: (os.getpid(),), 100.0)

    assert collector.members().ids == frozenset()
