"""Ends a tree mildly; at once, if the user says so meanwhile."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

from rocsteady.run.context import Services
from rocsteady.run.processes import AttemptProcesses
from rocsteady.run.stop_requests import StopRequests
from rocsteady.system.child_end import Stopping, StopResult
from rocsteady.wording import plural

POLL_EVERY = 0.05  # seconds


def end_tree(  # noqa: PLR0913 - how, each by name
    child: AttemptProcesses,
    stopping: Stopping,
    first: signal.Signals,
    services: Services,
    *,
    patience: int,
    futile: Callable[[], bool] | None = None,
) -> StopResult:
    """Stop the child from the ``first`` signal on; more than ``patience`` interrupts kill it.

    ``futile`` tells that nobody reacts to the last signal.
    """
    stop_requests = services.stop_requests
    if stop_requests.stop is not None:
        stop_requests.reacted()
    before = len(child.interrupts)
    if _at_once(child, stop_requests, before):
        ended = child.stop(stopping, first=None)
    else:
        with ThreadPoolExecutor(1, thread_name_prefix="rocsteady-ending") as pool:
            ending = pool.submit(child.stop, stopping, first=first, futile=futile)
            while not wait([ending], timeout=POLL_EVERY).done:
                if stop_requests.stop is not None:
                    stop_requests.reacted()
                if _at_once(child, stop_requests, before + patience):
                    child.stop(stopping, first=None)  # beside the mild one, which finds it ended
                    break
            ended = ending.result()
    if ended.unkillable:
        services.announcer.say(
            f"{plural(len(ended.unkillable), 'process', 'processes')} stuck in the kernel"
            " cannot be killed. The machine may need a reboot."
        )
    return ended


def interrupted_twice(child: AttemptProcesses) -> bool:
    """Tell whether two interrupts ask for the end, and not for a prompt that shows by now."""
    if not child.interrupts.ask_for_the_end(time.monotonic()):
        return False
    if child.at_prompt():
        child.interrupts.answered()
        return False
    return True


def _at_once(child: AttemptProcesses, stop_requests: StopRequests, interrupts: int) -> bool:
    """Tell whether the user will not wait: asked to end it again, or typed too many interrupts."""
    return stop_requests.at_once or len(child.interrupts) > interrupts
