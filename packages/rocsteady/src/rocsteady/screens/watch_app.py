"""The full screen of ``rocsteady watch``: a Textual application that follows one run.

Texts of others (logs, names, stacks) are shown as they are: never read as markup, and with control
characters made visible.
"""

# mypy: disable-error-code="unused-awaitable"
# Textual's own handlers push and dismiss screens without waiting for them.

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import tzinfo
from functools import partial
from typing import ClassVar

from rich.columns import Columns
from rich.table import Table
from rich.text import Text
from rocsteady_train.untrusted_file import read_regular
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, OptionList, ProgressBar, Sparkline, Static

from rocsteady.errors import RocsteadyError
from rocsteady.exit_codes import INTERRUPTED, PERSON_NEEDED
from rocsteady.model import RunOutcome, Value
from rocsteady.printable import printable
from rocsteady.run.run_watcher import RunWatcher, WatchView
from rocsteady.run.script_resume import can_resume
from rocsteady.run.watch_requests import STACKS, RequestKind, put_request
from rocsteady.screens.runs import state_of, style_of
from rocsteady.screens.watch import (
    ODD,
    SERIES,
    Series,
    details,
    is_paused,
    outlook,
    pace,
    part_done,
    series,
    state_in_words,
)
from rocsteady.store.journal import Journal
from rocsteady.store.values import Run, RunLine
from rocsteady.system.terminal import is_orphaned

READ_EVERY = 0.5  # seconds
NOTE_FOR = 5.0  # seconds
STACKS_WITHIN = 15.0  # seconds
STACKS_LIMIT = 4 << 20  # bytes
DONE, NOT_DONE, BY_SIGNAL = 0, PERSON_NEEDED, 128
LABEL = 12  # columns
NAME = 30  # columns of a run's name
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


class Controls(Value, frozen=True):
    stop: Callable[[Run], None]
    restart: Callable[[Run], None]


class RunView(Vertical):
    """One run: how far it is, its curves, what went wrong, the end of its log."""

    DEFAULT_CSS = """
    RunView #head, RunView .series { height: 1; }
    RunView #state, RunView #pace, RunView .last { width: auto; padding-right: 2; }
    RunView #part { width: 1fr; max-width: 48; padding-right: 2; }
    RunView #part Bar { width: 1fr; }
    RunView .label { width: 12; }
    RunView .series Sparkline { width: 1fr; max-width: 120; margin-right: 1; }
    RunView #details { height: auto; max-height: 60%; }
    RunView #log { height: 1fr; min-height: 3; }
    """

    def __init__(self, zone: tzinfo | None) -> None:
        super().__init__()
        self._zone = zone
        self._state, self._pace, self._outlook, self._details, self._log = (
            Static(id=name, markup=False) for name in ("state", "pace", "outlook", "details", "log")
        )
        self._part = ProgressBar(id="part", total=1.0, show_eta=False)
        self._curves = {name: Curve(name) for name in SERIES}

    def compose(self) -> ComposeResult:
        yield Horizontal(self._state, self._part, self._pace, id="head")
        yield self._outlook
        yield from self._curves.values()
        yield self._details
        yield self._log

    def show(self, view: WatchView) -> None:
        line = view.line
        state = state_in_words(line, view.story)
        again = f", attempt {line.attempts}" if line.attempts > 1 else ""
        style = "yellow" if state == "paused" else style_of(line)
        name = _line(line.run.name[:NAME])
        self._state.update(Text.assemble((name, "bold"), "  ", (f"{state}{again}", style)))
        part = part_done(line)
        self._part.display = part is not None
        self._part.update(progress=part or 0.0)
        self._pace.update(Text(pace(line)))
        self._outlook.update(Text(_line(outlook(view, self._zone))))
        measured = {each.label: each for each in series(view.story)}
        for label, curve in self._curves.items():
            curve.show(measured.get(label))
        rows = _labelled()
        for label, text in details(view, self._zone):
            rows.add_row(Text(label), Text(_line(text)) if isinstance(text, str) else _cells(text))
        self._details.update(rows)
        self._show_log(view.log)
        self.call_after_refresh(self._show_log, view.log)  # the details may have grown

    def _show_log(self, lines: Sequence[str]) -> None:
        last = lines[-max(self._log.size.height, 1) :] or ("(nothing printed yet)",)
        rows = _labelled(no_wrap=True)
        for number, text in enumerate(last):
            shown = printable(text.expandtabs(4).rstrip())
            rows.add_row("" if number else "log", Text(shown))
        self._log.update(rows)


class Curve(Horizontal):
    def __init__(self, label: str) -> None:
        super().__init__(classes="series")
        self._label = Static(label, classes="label", markup=False)
        self._values = Sparkline(summary_function=max)
        self._last = Static(classes="last", markup=False)

    def compose(self) -> ComposeResult:
        yield self._label
        yield self._values
        yield self._last

    def show(self, found: Series | None) -> None:
        self.display = found is not None
        if found is not None:
            self._values.data = list(found.values)
            self._last.update(Text(found.last))


class TextScreen(Screen[None]):
    CSS = """
    TextScreen #title { text-style: bold; }
    TextScreen VerticalScroll > Static { width: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "back", "back"),
        Binding("space", "scroll('page_down')", "next page"),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, printable(text.expandtabs(4))

    def compose(self) -> ComposeResult:
        yield Static(Text(self._title), id="title", markup=False)
        with VerticalScroll():
            yield Static(Text(self._text, no_wrap=True), markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def action_back(self) -> None:
        """Return to the run; a second key that was typed meanwhile does nothing."""
        if self.is_current:
            self.dismiss()

    def action_scroll(self, how: str) -> None:
        getattr(self.query_one(VerticalScroll), f"scroll_{how}")(animate=False)


class ChoiceScreen(Screen[str | None]):
    """Runs, one a line; the result is the chosen one's name, or None to leave."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "quit", "quit")]

    def __init__(self, lines: Sequence[RunLine]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        yield Static("Choose a run: a number, or up, down and enter", markup=False)
        yield OptionList(
            *(Text(_choice(number, line)) for number, line in enumerate(self._lines, start=1)),
            markup=False,
        )
        yield Footer(show_command_palette=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._choose(self._lines[event.option_index].run.name)

    def on_key(self, event: Key) -> None:
        if event.key.isdecimal() and 0 < int(event.key) <= len(self._lines):
            self._choose(self._lines[int(event.key) - 1].run.name)

    def action_quit(self) -> None:
        self._choose(None)

    def _choose(self, name: str | None) -> None:
        if self.is_current:  # once, however fast the keys are
            self.dismiss(name)


class Question(ModalScreen[bool]):
    CSS = """
    Question { align: center middle; }
    Question Static { width: auto; max-width: 100%; padding: 1 2; background: $panel; }
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{_line(self._text)} y/n", "bold"), markup=False)

    def on_key(self, event: Key) -> None:
        event.stop()
        if self.is_current:  # once, however fast the keys are
            self.dismiss(event.key in ("y", "Y"))


class WatchApp(App[int]):
    """Shows one run; its keys act on that run. The result is the exit code."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "#note { height: 1; text-style: bold; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "stacks", "stacks"),
        Binding("p", "pause", "pause"),
        Binding("R", "restart", "restart", key_display="R"),
        Binding("x", "stop", "stop"),
        Binding("r", "report", "report"),
        Binding("l", "runs", "runs"),
        Binding("question_mark", "keys", "help", key_display="?"),
        Binding("q", "leave", "quit"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_view", show=False, priority=True),
    ]

    def __init__(
        self,
        journal: Journal,
        name: str,
        controls: Controls,
        *,
        ask: bool = False,  # which run, if several are going on
        zone: tzinfo | None = None,
    ) -> None:
        super().__init__()
        self._journal, self._controls = journal, controls
        self._watcher = RunWatcher(journal, name, os.environ)
        self._view = self._watcher.view()
        self._ask = ask and sum(bool(line.alive) for line in self._watcher.lines) > 1
        self._run_view = RunView(zone)
        self._note = Static(id="note", markup=False)
        self._stacks_asked: float | None = None
        self._note_until = 0.0

    def compose(self) -> ComposeResult:
        yield self._run_view
        yield self._note
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(
                number, partial(self.exit, BY_SIGNAL + number)
            )
        self.call_after_refresh(self._follow)
        self.set_interval(READ_EVERY, self._follow)
        if self._ask:
            self.action_runs()

    def on_resize(self) -> None:
        self.call_after_refresh(self._follow)

    def _follow(self) -> None:
        self._view = self._watcher.view()
        self._run_view.show(self._view)
        if time.monotonic() >= self._note_until:
            self._note.update("")
        self._look_for_stacks()

    def action_leave(self) -> None:
        run = self._view.line.run
        failed = run.ended is not None and run.outcome is not RunOutcome.DONE
        self.exit(NOT_DONE if failed else DONE)

    def action_interrupt(self) -> None:
        self.exit(INTERRUPTED)

    def action_suspend_view(self) -> None:
        """Give the terminal back until we are continued, if a shell would do that."""
        if not is_orphaned():
            self.action_suspend_process()

    def action_stacks(self) -> None:
        """Ask the supervisor for stacks; they are shown when they come."""
        if self._acts_here() and self._request(RequestKind.STACKS):
            self._stacks_asked = time.time()
            self._say("reading stacks")

    def action_pause(self) -> None:
        if self._acts_here():
            paused = is_paused(self._view.story)
            if self._request(RequestKind.CONTINUE if paused else RequestKind.PAUSE):
                self._say("continuing" if paused else "pausing")

    def action_stop(self) -> None:
        if self._acts_here():
            self._confirm(f"Stop {self._watcher.name}?", self._controls.stop, "stopping")

    def action_restart(self) -> None:
        if not self._acts_here():
            return
        if not can_resume(self._view.line.run, self._journal):
            self._say("not restarted: rocsteady does not know how this script resumes")
            return
        text = f"Restart {self._watcher.name} in the background, from its newest checkpoint?"
        self._confirm(text, self._controls.restart, "restarting")

    def action_report(self) -> None:
        from rocsteady.report.pages import render_markdown  # noqa: PLC0415 - the same
        from rocsteady.report.read_run import read_story  # noqa: PLC0415 - slow, seldom

        try:
            text = render_markdown(read_story(self._journal, self._view.line, now=time.time()))
        except (RocsteadyError, OSError) as error:
            self._say(str(error))
        else:
            self.push_screen(TextScreen(f"Report of {self._watcher.name}", text))

    def action_runs(self) -> None:
        lines = sorted(self._watcher.lines, key=lambda line: not line.alive)
        self.push_screen(ChoiceScreen(lines), self._choose)

    def action_keys(self) -> None:
        self.push_screen(TextScreen("Keys", HELP))

    def _choose(self, name: str | None) -> None:
        if name is None:
            self.action_leave()
            return
        self._watcher = RunWatcher(self._journal, name, os.environ)
        self._follow()

    def _confirm(self, text: str, act: Callable[[Run], None], doing: str) -> None:
        def answered(yes: bool | None) -> None:  # noqa: FBT001 - as textual calls it
            if not yes:
                return
            try:
                act(self._view.line.run)
            except (RocsteadyError, OSError) as error:
                self._say(str(error))
            else:
                self._say(f"{doing} {self._watcher.name}")

        self.push_screen(Question(text), answered)

    def _say(self, text: str) -> None:
        self._note_until = time.monotonic() + NOTE_FOR
        self._note.update(Text(_line(text)))

    def _request(self, kind: RequestKind) -> bool:
        try:
            put_request(self._watcher.folder, kind)
        except (RocsteadyError, OSError) as error:
            self._say(str(error))
            return False
        return True

    def _acts_here(self) -> bool:
        """Whether the run can be acted on from here; if not, the note says why."""
        line = self._view.line
        if line.run.ended is not None or line.alive is False:
            self._say(f"{line.run.name} is not running")
        elif line.alive is None:
            self._say(f"{line.run.name} may run on another machine or in another container")
        else:
            return True
        return False

    def _look_for_stacks(self) -> None:
        asked, path = self._stacks_asked, self._watcher.folder / STACKS
        if asked is None:
            return
        try:
            written = path.stat().st_mtime >= asked
            content = read_regular(path, STACKS_LIMIT, follow=False) if written else b""
        except OSError:
            content = b""
        if content:
            self._stacks_asked = None
            text = content.decode("utf-8", "replace")
            self.push_screen(TextScreen(f"Stacks of {self._watcher.name}", text))
        elif time.time() > asked + STACKS_WITHIN:
            self._stacks_asked = None
            self._say("no stacks: the supervisor did not answer")


def _labelled(*, no_wrap: bool = False) -> Table:
    rows = Table.grid(expand=True)
    rows.add_column(width=LABEL, no_wrap=True)
    rows.add_column(ratio=1, no_wrap=no_wrap, overflow="ellipsis" if no_wrap else "fold")
    return rows


def _cells(texts: Sequence[str]) -> Columns:
    cells = (Text(_line(text), "red" if text.endswith(ODD) else "") for text in texts)
    return Columns(cells, padding=(0, 3))


def _choice(number: int, line: RunLine) -> str:
    step = "" if line.step is None else f"step {line.step:,}"
    total = f"/{line.total:,}" if line.total and step else ""
    name = _line(line.run.name)
    return f"{number}  {name:<24} {state_of(line):<12} {step}{total}"


def _line(text: str) -> str:
    return printable(" ".join(text.split()))
