"""Whether logging out ends a run is said only where logind was told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocsteady.run.startup import logging_out_ends_us

SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"
KILLS, SPARES = "[Login]\nKillUserProcesses=yes\n", "[Login]\nKillUserProcesses=no\n"


@pytest.mark.parametrize(
    ("cgroup", "files", "ends"),
    [
        (SESSION, {}, False),
        (SESSION, {"etc/systemd/logind.conf": KILLS}, True),
        (SESSION, {"etc/systemd/logind.conf": f"#{KILLS[8:]}"}, False),
        (
            SESSION,
            {"etc/systemd/logind.conf": KILLS, "etc/systemd/logind.conf.d/9.conf": SPARES},
            False,
        ),
        (SESSION, {"usr/lib/systemd/logind.conf.d/1.conf": KILLS}, True),
        ("0::/user.slice/run-u9.scope\n", {"etc/systemd/logind.conf": KILLS}, False),
        ("0::/system.slice/cron.service\n", {"etc/systemd/logind.conf": KILLS}, False),
    ],
)
def test_only_where_logind_is_told_to_kill(
    tmp_path: Path, cgroup: str, files: dict[str, str], *, ends: bool
) -> None:
    for name, content in {"proc/self/cgroup": cgroup, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    assert logging_out_ends_us(tmp_path) is ends
