"""Stacks of known waits are recognised, and nothing that only looks like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocsteady.doctor.knowledge.reader import DataFolder
from rocsteady.doctor.knowledge.waits import load_waits
from rocsteady.errors import KnowledgeError

WAITS = load_waits()
PACKAGES = "/venv/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("native", "place"),
    [
        (("rocr::core::InterruptSignal::WaitRelaxed(hsa_signal_condition_t, long)",), 0),
        (("clock_gettime", "hsa_signal_wait_scacquire (libhsa-runtime64.so.1)"), 1),
        (("rocr::core::BusyWaitSignal::WaitRelaxed",), 0),
        (("my_hipStreamSynchronize_wrapper",), None),
        (("mkl_lapack_sgesdd",), None),
        ((), None),
    ],
)
def test_device_waits(native: tuple[str, ...], place: int | None) -> None:
    assert WAITS.device(native) == place


@pytest.mark.parametrize(
    ("name", "frames", "native", "helps"),
    [
        ("gloo_tcp_loop", (), (), True),
        ("python", (f"run ({PACKAGES}/tqdm/_monitor.py:60)",), (), True),
        ("python", ("check_status (sdk/wandb_run.py:1)",), (), True),
        ("python", ("run (C:\\venv\\Lib\\site-packages\\tqdm\\_monitor.py:60)",), (), True),
        ("python", (), ("ioctl", "rocr::core::Runtime::AsyncEventsLoop(void*)"), True),
        ("python", ("Agent._invoke_run (server/api.py:900)",), (), True),
        ("python", ("handle (server/api.py:900)",), (), False),
        (
            "python",
            (f"run ({PACKAGES}/lightning/fabric/strategies/launchers/subprocess_script.py:209)",),
            (),
            True,
        ),
        ("python", ("launch (launchers/subprocess_script.py:106)",), (), False),
        ("pt_pywd_health", (), (), True),
        ("python", ("_Watchdog._health_watchdog_loop (distributed/_watchdog.py:300)",), (), True),
        ("python", ("_Watchdog._run_loop (distributed/_watchdog.py:195)",), (), False),
        ("python", ("load (/home/u/data.py:3)",), ("futex_wait",), False),
        ("python", ("main (sdk/my_wandb_run.py:3)",), (), False),
    ],
)
def test_helpers(
    name: str, frames: tuple[str, ...], native: tuple[str, ...], *, helps: bool
) -> None:
    assert WAITS.helper(name, frames, native) is helps


def test_collectives_and_people() -> None:
    assert WAITS.collective((f"barrier ({PACKAGES}/torch/distributed/distributed_c10d.py:9)",), ())
    assert WAITS.collective((), ("c10d::Work::wait(std::chrono::duration)",))
    assert WAITS.collective(("all_reduce (distributed/distributed_c10d.py:3007)",), ())
    assert WAITS.person(("trace_dispatch (/usr/lib/python3.12/bdb.py:115)",))
    assert WAITS.person(("cmdloop (/usr/lib/python3.12/cmd.py:126)",))
    assert not WAITS.person(("run (/usr/lib/python3.12/bdb.py:597)",))
    assert not WAITS.person(("read (/home/u/pdb.py:3)",))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('device = [{ native = "f", sources = [] }]', "- at `$.sources`"),
        ('device = [{ sources = ["x"] }]', "one of them"),
        ('device = [{ native = "f", python = "g", sources = ["x"] }]', "one of them"),
        ("device = 3", "device"),
    ],
)
def test_a_wrong_entry_is_ignored_and_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "waits.toml").write_text(f"{text}\n", encoding="utf-8")
    data = DataFolder(tmp_path)

    assert load_waits(data).signs["device"] == ()
    assert len(data.ignored) == 1
    assert problem in data.ignored[0]


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "waits.toml").write_text("device = [", encoding="utf-8")

    with pytest.raises(KnowledgeError, match=r"waits\.toml"):
        load_waits(DataFolder(tmp_path))
