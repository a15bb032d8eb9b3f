"""Ends a tree mildly; at once, if the user says so a second time meanwhile."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor, wait

from rocsteady.host.child import Child, Ended, Stopping
from rocsteady.supervisor.wishes import Wishes

LOOK_EVERY = 0.05  # seconds


def wants_it_at_once(child: Child, wishes: Wishes) -> bool:
    """Tell whether the user interrupted twice, by keys or by signals."""
    return child.interrupts > 1 or wishes.at_once


def end_tree(
    child: Child, stopping: Stopping, first: signal.Signals | None, wishes: Wishes
) -> Ended:
    """Stop the child from the ``first`` signal on; the user's patience shortens the waits."""
    if first is None or wants_it_at_once(child, wishes):
        return child.stop(stopping, first=None)
    with ThreadPoolExecutor(1, thread_name_prefix="rocsteady-ending") as pool:
        ending = pool.submit(child.stop, stopping, first=first)
        while not wait([ending], timeout=LOOK_EVERY).done:
            if wants_it_at_once(child, wishes):
                child.stop(stopping, first=None)  # beside the mild one, which then finds it ended
                break
        return ending.result()
