"""The full screen of ``rocsteady watch``: what its keys do, and which page it shows."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rocsteady_train.untrusted_file import read_regular

from rocsteady.cli.detach import OUTPUT
from rocsteady.cli.stop import ask_supervisor
from rocsteady.errors import RocsteadyError
from rocsteady.exit_codes import INTERRUPTED, PERSON_NEEDED
from rocsteady.model import RunOutcome
from rocsteady.run.run_watcher import RunWatcher
from rocsteady.run.script_resume import can_resume
from rocsteady.run.watch_requests import STACKS, RequestKind, put_request
from rocsteady.screens.text_page import takes_colour
from rocsteady.screens.text_view import render_choice, render_text, text_room
from rocsteady.screens.watch import WatchView, is_paused, render_watch
from rocsteady.store.journal import Journal
from rocsteady.store.values import RunLine
from rocsteady.system.background import start_detached
from rocsteady.system.full_screen import FullScreen

DRAW_EVERY = 0.5  # seconds
NOTE_FOR = 5.0  # seconds
STACKS_WITHIN = 15.0  # seconds
STACKS_LIMIT = 4 << 20  # bytes
DONE, NOT_DONE = 0, PERSON_NEEDED
HELP = """\
s          show the Python stacks of every process now
p          pause the run, or continue it
R          restart the run in the background, from its newest checkpoint
x          stop the run
r          show the report
l          choose another run
q          leave; the run continues
^Z         suspend this view; the run continues

A paused run keeps its memory, including GPU memory. After a long pause,
connections and distributed timeouts of the script may have expired.
"""


def watch_screen(journal: Journal, name: str, *, ask: bool = False) -> int:
    """Show a run until the user leaves; return the exit code. ``ask``: which, if several run."""
    with FullScreen() as screen:
        return WatchScreen(journal, name, screen, ask=ask).show()


@dataclass
class TextPage:
    """A text that is being read."""

    title: str
    lines: list[str]
    first: int = 0


class WatchScreen:
    """Shows one run; its keys act on that run."""

    def __init__(self, journal: Journal, name: str, screen: FullScreen, *, ask: bool) -> None:
        self._journal, self._screen = journal, screen
        self._watcher = RunWatcher(journal, name, os.environ)
        self._colour = takes_colour(sys.stdout)
        self._blocks = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        self._text: TextPage | None = None
        self._choice: int | None = None  # in the list of runs, while that is shown
        self._question: tuple[str, Callable[[WatchView], str]] | None = None
        self._note, self._note_until = "", 0.0
        self._stacks_asked: float | None = None
        self._view = self._watcher.view()
        if ask and len(self._running()) > 1:
            self._choice = 0

    def show(self) -> int:
        """Draw and take keys until the user leaves; return the exit code."""
        while True:
            self._view = self._watcher.view(self._foot())
            self._screen.draw(self._drawn())
            key = self._screen.key(DRAW_EVERY)
            if key == "interrupt":
                return INTERRUPTED
            if key and self._pressed(key):
                run = self._view.line.run
                return (
                    NOT_DONE
                    if run.ended is not None and run.outcome is not RunOutcome.DONE
                    else DONE
                )
            self._look_for_stacks()

    def _running(self) -> tuple[RunLine, ...]:
        return tuple(line for line in self._watcher.lines if line.alive)

    def _choices(self) -> tuple[RunLine, ...]:
        """Return the runs to choose from: those going on, then the others."""
        return tuple(sorted(self._watcher.lines, key=lambda line: not line.alive))

    def _foot(self) -> str:
        if self._question is not None:
            return f"{self._question[0]} y/n"
        return self._note if time.monotonic() < self._note_until else ""

    def _drawn(self) -> str:
        width, height = self._screen.size
        if self._text is not None:
            page = self._text
            page.first = min(page.first, max(0, len(page.lines) - text_room(height)))
            return render_text(
                page.title, page.lines, first=page.first, width=width, height=height,
                colour=self._colour,
            )  # fmt: skip
        if self._choice is not None:
            return render_choice(
                self._choices(), self._choice, width=width, height=height, colour=self._colour
            )
        return render_watch(
            self._view, width=width, height=height, colour=self._colour, blocks=self._blocks
        )

    def _pressed(self, key: str) -> bool:
        """Act on a key; tell whether it leaves."""
        if self._question is not None:
            _, confirmed = self._question
            self._question = None
            if key in ("y", "Y"):
                self._say(confirmed(self._view))
            return False
        if self._text is not None:
            self._scroll(self._text, key)
            return False
        if self._choice is not None:
            return self._choose(key, self._choice)
        if key == "q":
            return True
        act = {
            "s": self._ask_for_stacks,
            "p": self._pause,
            "R": self._ask_restart,
            "x": self._ask_stop,
            "r": self._show_report,
            "l": self._list,
            "?": self._help,
        }.get(key)
        if act is not None:
            try:
                act()
            except (RocsteadyError, OSError) as error:
                self._say(str(error))
        return False

    def _scroll(self, page: TextPage, key: str) -> None:
        room = text_room(self._screen.size[1])
        moves = {"up": -1, "down": 1, "k": -1, "j": 1, "page up": -room, "page down": room}
        if key in ("q", "escape"):
            self._text = None
        else:
            page.first = max(0, page.first + moves.get(key, 0))

    def _choose(self, key: str, chosen: int) -> bool:
        choices = self._choices()
        if key == "q":
            return True
        if key in ("up", "down", "k", "j"):
            step = 1 if key in ("down", "j") else -1
            self._choice = min(max(0, chosen + step), len(choices) - 1)
        elif key == "enter" or (key.isdecimal() and 0 < int(key) <= len(choices)):
            line = choices[int(key) - 1] if key.isdecimal() else choices[chosen]
            self._watcher = RunWatcher(self._journal, line.run.name, os.environ)
            self._choice = None
        return False

    def _say(self, text: str) -> None:
        self._note, self._note_until = text, time.monotonic() + NOTE_FOR

    def _acts_here(self) -> bool:
        """Tell whether the run can be acted on from here; say why not."""
        line = self._view.line
        if line.run.ended is not None or line.alive is False:
            self._say(f"{line.run.name} is not running")
        elif line.alive is None:
            self._say(f"{line.run.name} may run on another machine or in another container")
        else:
            return True
        return False

    def _ask_for_stacks(self) -> None:
        if self._acts_here():
            put_request(self._watcher.folder, RequestKind.STACKS)
            self._stacks_asked = time.time()
            self._say("reading stacks")

    def _look_for_stacks(self) -> None:
        """Show the stacks once the supervisor has written them."""
        asked, path = self._stacks_asked, self._watcher.folder / STACKS
        if asked is None:
            return
        try:
            written = path.stat().st_mtime >= asked
            text = read_regular(path, STACKS_LIMIT, follow=False) if written else b""
        except OSError:
            text = b""
        if text:
            self._stacks_asked = None
            lines = text.decode("utf-8", "replace").splitlines()
            self._text = TextPage(f"Stacks of {self._watcher.name}", lines)
        elif time.time() > asked + STACKS_WITHIN:
            self._stacks_asked = None
            self._say("no stacks: the supervisor did not answer")

    def _pause(self) -> None:
        if self._acts_here():
            paused = is_paused(self._view.story)
            put_request(self._watcher.folder, RequestKind.CONTINUE if paused else RequestKind.PAUSE)
            self._say("continuing" if paused else "pausing")

    def _ask_stop(self) -> None:
        if self._acts_here():
            self._question = (f"Stop {self._watcher.name}?", self._stop)

    def _ask_restart(self) -> None:
        if not self._acts_here():
            return
        if not can_resume(self._view.line.run, self._journal):
            self._say("not restarted: rocsteady does not know how this script resumes")
            return
        text = f"Restart {self._watcher.name} in the background, from its newest checkpoint?"
        self._question = (text, self._restart)

    def _stop(self, view: WatchView) -> str:
        try:
            ask_supervisor(view.line.run)
        except RocsteadyError as error:
            return str(error)
        return f"stopping {view.line.run.name}"

    def _restart(self, view: WatchView) -> str:
        name = view.line.run.name
        command = [sys.executable, "-m", "rocsteady", "run", "--detach", "--yes", "--resume", name]
        output = self._journal.place.folder / OUTPUT
        start_detached(command, os.environ, Path.cwd(), output)
        return f"restarting {name}"

    def _show_report(self) -> None:
        from rocsteady.report.markdown_report import render_story  # noqa: PLC0415 - slow, seldom
        from rocsteady.report.run_facts import gather  # noqa: PLC0415 - the same

        report = gather(self._journal, self._view.line, now=time.time())
        lines = render_story(report).splitlines()
        self._text = TextPage(f"Report of {self._watcher.name}", lines)

    def _list(self) -> None:
        self._choice = 0

    def _help(self) -> None:
        self._text = TextPage("Keys", HELP.splitlines())
