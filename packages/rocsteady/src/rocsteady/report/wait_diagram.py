"""Who waits for whom, as a chain of boxes: the main thread, its wait, and who holds that."""

from __future__ import annotations

from collections.abc import Sequence

from rocsteady.hangs.frames import is_users_file, path_of, place_of_frame
from rocsteady.hangs.proof.stack_frames import has_users_code, own_part, queue_of
from rocsteady.hangs.proof.wait_set import Waiter
from rocsteady.model import Value

MOST_BOXES = 6  # boxes
BOX_WIDTH = 44  # characters of a box; the rest is cut
UNCOUNTED = ("time", "a", "the", "something", "runs")  # waits that need no article


class Box(Value, frozen=True, kw_only=True):
    """One thread, or what the last of them waits for."""

    title: str
    detail: str
    waits_for: str = ""  # on the arrow to the next box
    blamed: bool = False


def wait_boxes(waiters: Sequence[Waiter], place: str) -> tuple[Box, ...]:
    """Follow the wait of the first thread to the one that nobody wakes; () if it does not wait.

    Of several ranks, the first may wait for the blamed one over the network, which no thread's wait
    shows: the chain then begins with the blamed one.
    """
    if not waiters or waiters[0].waits_for == "runs":
        return ()
    boxes = _chain(waiters[0], waiters, place)
    blamed = next((each for each in waiters if place and each.place == place), None)
    if blamed is None or blamed.waits_for == "runs" or any(box.blamed for box in boxes):
        return boxes
    return _chain(blamed, waiters, place)


def _chain(first: Waiter, waiters: Sequence[Waiter], place: str) -> tuple[Box, ...]:
    by_key = {(each.pid, each.tid): each for each in waiters}
    current, boxes, seen = first, list[Box](), set[tuple[int, int]]()
    while len(boxes) < MOST_BOXES:
        seen.add((current.pid, current.tid))
        boxes.append(
            Box(
                title=_cut(spoken(current.place) or "not Python"),
                detail=_who(current, first),
                waits_for=wait_of(current),
                blamed=bool(place) and current.place == place,
            )
        )
        enders = [by_key[key] for key in current.ended_by if key in by_key]
        # Helpers of libraries could end much, and never do.
        told = [it for it in enders if has_users_code(it.frames) or it.pid != current.pid]
        following = [each for each in told if (each.pid, each.tid) not in seen]
        if not following:
            boxes.append(_last(current, told))
            break
        current = min(following, key=lambda each: _rank(each, current, place))
    return tuple(boxes)


def _rank(waiter: Waiter, before: Waiter, place: str) -> tuple[bool, bool, bool]:
    blamed = bool(place) and waiter.place == place
    return not blamed, not has_users_code(waiter.frames), waiter.pid == before.pid


def _last(current: Waiter, told: Sequence[Waiter]) -> Box:
    """Return what the last thread waits for; that somebody holds it is said only of a circle."""
    back = next((each for each in told if each.tid != current.tid), None)
    if back is not None:
        who = _cut(spoken(back.place) or f"process {back.pid}")
        return Box(title=wait_of(current), detail=f"only {who} could end this, and it waits too")
    return Box(title=wait_of(current), detail="every thread that could end this is blocked")


def _who(waiter: Waiter, first: Waiter) -> str:
    if waiter.pid == first.pid:
        return f"process {waiter.pid}" if waiter.tid == waiter.pid else f"thread {waiter.tid}"
    return f"child process {waiter.pid}"


def wait_of(waiter: Waiter) -> str:
    """Name what a thread waits for: a queue, a pipe, a lock."""
    if queue := queue_of(waiter.frames):
        return queue
    what = waiter.waits_for.split()
    kind = what[1] if what[0] == "shared" and len(what) > 1 else what[0]
    return waiter.waits_for if kind in UNCOUNTED else f"a {kind}"


def spoken(place: str) -> str:
    """Write a place as one says it: "train.py:24 in load"."""
    return place if " in " in place else place.replace(" ", " in ", 1)


def frame_at(waiters: Sequence[Waiter], place: str) -> tuple[str, int] | None:
    """Return the file and the line of a place, as the stack that it was found in has them."""
    for waiter in waiters:
        for frame in own_part(waiter.frames):
            if place_of_frame(frame) == place and is_users_file(path_of(frame)):
                line = place.partition(" ")[0].rpartition(":")[2]
                return (path_of(frame), int(line)) if line.isdecimal() else None
    name, _, line = place.partition(" ")[0].rpartition(":")
    return (name, int(line)) if name and line.isdecimal() else None


def _cut(text: str) -> str:
    return text if len(text) <= BOX_WIDTH else f"{text[: BOX_WIDTH - 1]}…"
