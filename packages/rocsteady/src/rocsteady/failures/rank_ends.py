"""Which rank ended first, and how, as its launcher says it: its own exit code tells neither."""

from __future__ import annotations

import re

from rocsteady.system.child_end import Exit, exit_as

_ENDS = re.compile(
    # torchrun: below 0 is a signal
    r"Root Cause \(first observed failure\):\n(?:.*\n){0,4}?\W*rank +: (?P<a_rank>\d+).*\n"
    r"\W*exitcode +: (?P<a_code>-?\d+)"
    # Lightning, likewise
    r"|\[rank: (?P<b_rank>\d+)\] Child process with PID \d+ terminated with code (?P<b_code>-?\d+)"
    # Open MPI
    r"|process rank (?P<c_rank>\d+) with PID \d+ on node \S+ exited on signal (?P<c_signal>\d+)"
    r"|Process name: \[\[\d+,\d+\],(?P<d_rank>\d+)\]\s+Exit code: +(?P<d_code>\d+)"
    # srun
    r"|srun: error: \S+: task (?P<e_rank>\d+): (?:(?P<e_kill>Killed)|.* exit code (?P<e_code>\d+))"
)


def told_end(log: str) -> Exit | None:
    """Return how the first rank ended, as its launcher says it; None: it says nothing."""
    found = next(_ENDS.finditer(log), None)
    if found is None:
        return None
    told = {name[2:]: text for name, text in found.groupdict().items() if text is not None}
    by_signal = told.get("signal", "9" if "kill" in told else "0")
    return exit_as(int(told.get("code", f"-{by_signal}")), int(told["rank"]))
