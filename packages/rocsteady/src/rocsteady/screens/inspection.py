"""The screen of ``rocsteady watch --pid``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rocsteady.colours import BOLD, DIM, GREEN, RED, YELLOW
from rocsteady.doctor.knowledge.values import SCRIPT, Step
from rocsteady.hangs.frames import is_users_file, path_of, place_of_frame
from rocsteady.hangs.inspection import Candidates, Inspection, ProcessState
from rocsteady.hangs.proof.stack_frames import has_users_code, own_part
from rocsteady.hangs.proof.wait_set import Waiter
from rocsteady.report.wait_diagram import spoken
from rocsteady.report.wait_diagram import wait_of as object_of
from rocsteady.screens.screen import Page
from rocsteady.store.redaction import shown_command
from rocsteady.wording import duration, plural, size

STYLES = {
    ProcessState.STUCK: RED,
    ProcessState.WAITING: YELLOW,
    ProcessState.WORKING: GREEN,
    ProcessState.STOPPED: YELLOW,
    ProcessState.UNSEEN: YELLOW,
}
WAITS = (ProcessState.STUCK, ProcessState.WAITING)
MAX_WAITERS = 8  # threads that are shown
ELSEWHERE = ("rocsteady report",)  # commands for runs of rocsteady only
# A kernel that is started so is connected to nobody; docs/howto/notebooks.md.
NOTEBOOK = "jupyter nbconvert --to notebook --execute train.ipynb --output out.ipynb"
MAX_FRAMES = 12  # of a stack
UNSEEN_WITHOUT_HEARTBEAT = (
    "Seen from outside only: steps and loss are known for runs started with `rocsteady run`."
)


def render_inspection(found: Inspection, advice: Sequence[Step], *, page: Page) -> str:
    label = found.state.value
    headline = f"{spoken(found.place)}: {found.why}" if found.place else found.why
    page.row(label, headline, column=len(label) + 2, style=STYLES[found.state])
    page.paragraph(about(found), style=DIM)
    chain = shown_waiters(found)
    if chain and found.state in WAITS:
        page.heading("Who waits for whom")
        for waiter in chain:
            page.line(f"  {spoken(waiter.place) or 'not Python'}  (process {waiter.pid})")
            page.paragraph(wait_of(waiter), indent=4)
    if found.ways_out:
        page.heading("What may still end the wait")
        for clause in found.ways_out[:MAX_WAITERS]:
            page.paragraph(clause, indent=2)
    for waiter in shown_stacks(found):
        page.heading(f"Stack of process {waiter.pid}, innermost first")
        for frame, users in stack_of(waiter):
            page.line(f"  {frame}", style="" if users else DIM)
    page.heading("What to do")
    for number, step in enumerate(to_do(found, advice), start=1):
        page.step(number, step.text)
        page.lines(step.commands, indent=5)
    page.line()
    page.paragraph(f"Nothing was changed. {UNSEEN_WITHOUT_HEARTBEAT}", style=DIM)
    return str(page)


def render_candidates(found: Candidates, *, page: Page) -> str:
    if not found.processes:
        page.paragraph(
            "No process that you may look into trains with PyTorch. If it runs as another user or"
            " in a container, use sudo, or name it: rocsteady watch --pid PID"
        )
        return str(page)
    page.line("Several processes train with PyTorch. To inspect one:", style=BOLD)
    for each in found.processes:
        page.line()
        page.line(f"  rocsteady watch --pid {each.pid}")
        started = f"started {duration(each.age)} ago"
        page.paragraph(f"{shown_command(each.command)} · {started}", indent=4, style=DIM)
    return str(page)


def about(found: Inspection) -> str:
    processes = "1 process" if found.processes == 1 else f"{found.processes} processes"
    parts = [
        f"process {found.pid}",
        shown_command(found.command),
        f"started {duration(found.age)} ago",
        f"{processes}, {size(found.memory_bytes)}",
        f"GPU {found.gpus}" if found.gpus else "",
    ]
    return " · ".join(part for part in parts if part)


def shown_waiters(found: Inspection) -> list[Waiter]:
    """Return the threads in the user's own code, else the first; helpers only wait with them."""
    own = [each for each in found.waiters if has_users_code(each.frames)]
    return (own or list(found.waiters[:1]))[:MAX_WAITERS]


def wait_of(waiter: Waiter) -> str:
    if waiter.waits_for == "runs":
        return "runs"
    what = object_of(waiter)
    others = [pid for pid in waiter.enders if pid != waiter.pid]
    if others:
        which = "process" if len(others) == 1 else "processes"
        return f"waits for {what}; {which} {', '.join(map(str, others[:MAX_WAITERS]))} could end it"
    return f"waits for {what}"


def shown_stacks(found: Inspection) -> list[Waiter]:
    """Return the stack that the place is in, and that of the main thread."""
    blamed = [each for each in found.waiters if each.place == found.place and each.frames]
    main = [each for each in found.waiters if each.frames]
    return list(dict.fromkeys((*blamed[:1], *main[:1])))


def stack_of(waiter: Waiter) -> list[tuple[str, bool]]:
    """Return the lines of a stack, and whether each is the user's own; libraries are folded."""
    lines: list[tuple[str, bool]] = []
    folded = 0
    for frame in own_part(waiter.frames):
        users = is_users_file(path_of(frame))
        if users or not lines:
            if folded:
                lines.append((f"{plural(folded, 'frame')} of libraries", False))
            folded = 0
            lines.append((spoken(place_of_frame(frame)), users))
        else:
            folded += 1
    if folded:
        lines.append((f"{plural(folded, 'frame')} of libraries", False))
    return lines[:MAX_FRAMES]


def to_do(found: Inspection, advice: Sequence[Step]) -> tuple[Step, ...]:
    command = shlex.join(found.command) or SCRIPT
    command = NOTEBOOK if "ipykernel_launcher" in found.command else command
    next_time = Step(
        text="Next time, start it with rocsteady, which finds deadlocks and resumes if it can.",
        commands=(f"rocsteady run -- {command}",),
    )
    waits = found.state is ProcessState.WAITING
    again = Step(
        text="Look again in a minute. A wait that ends is no hang."
        if waits
        else "It works. Look again if it stops making progress.",
        commands=(f"rocsteady watch --pid {found.pid}",),
    )
    if found.state is ProcessState.STUCK:
        line = Step(text=f"Fix {spoken(found.place)}: nothing can end the wait there.")
        here = [step for step in advice if not {*step.commands} & {*ELSEWHERE}]
        known = [Step(text=it.text, commands=it.typed(command)) for it in here[:2]]
        return (*((line,) if found.place else ()), *known, next_time)
    if found.state is ProcessState.STOPPED:
        continues = (f"kill -CONT {found.pid}",)
        return (Step(text="Continue it, or end the debugger.", commands=continues),)
    if found.state is ProcessState.UNSEEN:
        return (
            Step(
                text="Inspect it as the user who started it, or as root.",
                commands=(f"sudo rocsteady watch --pid {found.pid}",),
            ),
        )
    return (again, next_time)
