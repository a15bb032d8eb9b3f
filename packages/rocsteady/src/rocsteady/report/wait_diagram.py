"""Who waits for whom, as a chain of boxes: the main thread, its wait, and who holds that."""

from __future__ import annotations

from collections.abc import Sequence

from rocsteady.hangs.frames import is_users_file, path_of, place_of_frame
from rocsteady.hangs.stack_frames import has_users_code, own_part
from rocsteady.hangs.wait_set import Waiter
from rocsteady.model import Value

LONGEST = 6  # boxes
WIDEST = 44  # characters of a box; the rest is cut
UNCOUNTED = ("time", "a", "the", "something", "runs")  # waits that need no article


class Box(Value, frozen=True, kw_only=True):
    """One thread, or what the last of them waits for."""

    title: str
    detail: str
    waits_for: str = ""  # on the arrow to the next box
    blamed: bool = False


def wait_boxes(waiters: Sequence[Waiter], place: str) -> tuple[Box, ...]:
    """Follow the wait of the first thread to the one that nobody wakes; () if it does not wait."""
    if not waiters or waiters[0].waits_for == "runs":
        return ()
    by_key = {(each.pid, each.tid): each for each in waiters}
    current, boxes, seen = waiters[0], list[Box](), set[tuple[int, int]]()
    while len(boxes) < LONGEST:
        seen.add((current.pid, current.tid))
        boxes.append(
            Box(
                title=_cut(spoken(current.place) or "not Python"),
                detail=_who(current, waiters[0]),
                waits_for=wait_of(current),
                blamed=bool(place) and current.place == place,
            )
        )
        enders = [by_key[key] for key in current.ended_by if key in by_key]
        following = [each for each in enders if (each.pid, each.tid) not in seen]
        if not following:
            boxes.append(_last(current, enders, seen))
            break
        current = min(following, key=lambda each: _rank(each, current, place))
    return tuple(boxes)


def _rank(waiter: Waiter, before: Waiter, place: str) -> tuple[bool, bool, bool]:
    blamed = bool(place) and waiter.place == place
    return not blamed, not has_users_code(waiter.frames), waiter.pid == before.pid


def _last(current: Waiter, enders: Sequence[Waiter], seen: set[tuple[int, int]]) -> Box:
    others = [each for each in enders if each.tid != current.tid and (each.pid, each.tid) in seen]
    what = wait_of(current)
    if others:
        back = others[0]
        return Box(title=f"{what}, held by {_cut(spoken(back.place) or str(back.pid))}",
                   detail="a circle: each waits for the other")  # fmt: skip
    if current.waits_for.startswith(("lock", "a lock", "shared")):
        return Box(title=what, detail="nobody else is left to release it")
    return Box(title=what, detail="nobody is left to end this wait")


def _who(waiter: Waiter, first: Waiter) -> str:
    if waiter.pid == first.pid:
        return f"process {waiter.pid}" if waiter.tid == waiter.pid else f"thread {waiter.tid}"
    return f"child process {waiter.pid}"


def wait_of(waiter: Waiter) -> str:
    """Name what a thread waits for: a pipe, a lock."""
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
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
