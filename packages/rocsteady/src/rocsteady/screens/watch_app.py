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
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import tzinfo
from functools import partial
from typing import ClassVar

from rich.text import Text
from rocsteady_train.untrusted_file import read_regular
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Footer, OptionList, ProgressBar, Static

from rocsteady.errors import RocsteadyError
from rocsteady.exit_codes import INTERRUPTED, PERSON_NEEDED
from rocsteady.model import RunOutcome, Value
from rocsteady.printable import printable
from rocsteady.run.attempt.watch_requests import STACKS, RequestKind, put_request
from rocsteady.run.telling.run_watcher import RunWatcher, WatchView
from rocsteady.screens.plan import clean
from rocsteady.screens.runs import render_summary, state_of
from rocsteady.screens.screen import Page
from rocsteady.screens.watch import (
    ODD_RANK,
    SHADES,
    braille,
    condition,
    curves,
    details,
    facts,
    failure_marks,
    folded_stacks,
    headline,
    is_paused,
    pace,
    part_done,
    retries,
    time_shares,
)
from rocsteady.store.journal import Journal
from rocsteady.store.values import Run, RunLine, RunRecord
from rocsteady.system.terminal_handover import is_orphaned
from rocsteady.wording import duration

READ_EVERY = 1.0  # seconds
NOTE_FOR = 5.0  # seconds
STACKS_WITHIN = 15.0  # seconds
STACKS_LIMIT = 4 << 20  # bytes
DONE, NOT_DONE, BY_SIGNAL = 0, PERSON_NEEDED, 128
LABEL = 13  # columns
CELL_GAP = 3  # columns between two cells
NARROW, WIDE = 50, 150  # columns: from here on there is a bar, or the log is beside the rest
LOW, TALL = 14, 34  # rows: from here on there are curves, or bars and an axis too
CURVE_ROWS = 10  # rows of a curve
A_SHARE = 0.005  # of the time; less would be shown as 0 %
NAME_WIDTH = 30  # columns of a run's name
SCROLLBAR = 2  # columns
HELP = """\
s    stacks: your own frames first; f shows all frames
p    pause the run, or continue it
R    retry now: restart in the background, from its newest checkpoint
x    stop the run
r    report
l    choose another run
q    quit; the run continues
^Z   suspend this view; the run continues

Select text with the mouse while holding shift.

A paused run keeps its memory, including GPU memory. After a long pause,
connections and distributed timeouts of the script may have expired.
"""


class Controls(Value, frozen=True):
    stop: Callable[[Run], None]
    restart: Callable[[Run], None]


class LogTail(Static):
    """The end of a log, which is cut anew whenever there is more or less room for it."""

    def __init__(self, cut: Callable[[], None]) -> None:
        super().__init__(id="log", markup=False)
        self._cut = cut

    def on_resize(self) -> None:
        self._cut()


class RunView(Vertical):
    DEFAULT_CSS = """
    RunView #head { height: 1; }
    RunView #badge, RunView #pace, RunView #name { width: auto; padding-right: 2; }
    RunView #part { width: 1fr; padding-right: 2; }
    RunView #part Bar { width: 1fr; }
    RunView #facts, RunView #curves { height: auto; }
    RunView #lower { height: 1fr; min-height: 3; }
    RunView #details { height: auto; max-height: 70%; }
    RunView #log { height: 1fr; min-height: 3; }
    RunView.wide #lower { layout: horizontal; }
    RunView.wide #details { width: 1fr; max-height: 100%; padding-right: 2; }
    RunView.wide #log { width: 1fr; }
    """

    def __init__(self, zone: tzinfo | None) -> None:
        super().__init__()
        self._zone = zone
        self._statics = {
            name: Static(id=name, markup=False)
            for name in ("badge", "name", "pace", "facts", "curves", "details")
        }
        self._log: Sequence[str] = ()
        self._statics["log"] = LogTail(self._show_log)
        self._part = ProgressBar(id="part", total=1.0, show_eta=False)
        self._drawn: dict[str, object] = {}  # what each of them shows
        self._curves_of: tuple[RunRecord, int, int] | None = None  # of which record, at which size

    def compose(self) -> ComposeResult:
        of = self._statics
        yield Horizontal(of["badge"], of["name"], self._part, of["pace"], id="head")
        yield of["facts"]
        yield of["curves"]
        yield Vertical(of["details"], of["log"], id="lower")

    def show(self, view: WatchView) -> None:
        columns, rows = self.app.size
        self.set_class(columns >= WIDE, "wide")
        state = condition(view)
        style = state.style if state.style == "bold" else f"{state.style} bold"
        self._draw("badge", f" {state.value.upper()} ", f"{style} reverse")
        self._draw("name", clean(view.line.run.name[:NAME_WIDTH]), "bold")
        part = part_done(view.line)
        self._part.display = part is not None and columns >= NARROW
        self._part.update(progress=part or 0.0)
        self._draw("pace", printable(pace(view)))
        self._put("facts", self._facts(view, columns))
        story, *size = self._curves_of or (None, 0, 0)
        if story is not view.story or size != [
            columns,
            rows,
        ]:  # it is read less often than the rest
            self._curves_of = view.story, columns, rows
            self._put("curves", self._curves(view, columns, rows))
        inside = columns // 2 - 2 if columns >= WIDE else columns
        self._put("details", self._details(view, inside, rows))
        self._log = view.log
        self._show_log()

    def _draw(self, name: str, text: str, style: str = "") -> None:
        self._put(name, Text(text, style))

    def _put(self, name: str, shown: Text) -> None:
        """Redraw a part, if it looks other than before."""
        seen = shown.plain, tuple(shown.spans), shown.style
        if self._drawn.get(name) != seen:
            self._drawn[name] = seen
            self._statics[name].display = bool(shown.plain)
            self._statics[name].update(shown)

    def _facts(self, view: WatchView, columns: int) -> Text:
        """Return what is known in numbers, the strip of retries, and what to know first."""
        cells = [
            Text.assemble((f"{label} ", "dim"), clean(value))
            for label, value in facts(view, self._zone)
        ]
        lines = list(_rows(cells, columns))
        if told := headline(view):
            said = Text(clean(told), condition(view).style, no_wrap=True)
            said.truncate(columns, overflow="ellipsis")
            lines.insert(0, said)
        if chips := retries(view.story):
            lines.append(_strip([Text(clean(chip.text), chip.style) for chip in chips], columns))
        return Text("\n").join(lines)

    def _curves(self, view: WatchView, columns: int, rows: int) -> Text:
        found = curves(view.story)
        height = max(1, min((rows - 9) // 5, CURVE_ROWS))
        width = columns - LABEL - 1
        if not found or rows < LOW or width < LABEL:
            return Text()
        begin = min(curve.begin for curve in found)
        end = view.line.run.ended or view.now
        lines = []
        for curve in found:
            labels = (clean(curve.label), f" {curve.last}", f" {curve.span}")
            for number, drawn in enumerate(braille(curve, begin, end, width, height)):
                label = labels[number] if number < len(labels) else ""
                if height == 1:
                    label = f"{clean(curve.label).removesuffix(' time')} {curve.last}"
                style = "dim" if number > 1 else ""
                lines.append(Text.assemble((f"{label[:LABEL]:<{LABEL}} ", style), (drawn, "cyan")))
        if marks := failure_marks(view.story, begin, end, width):
            lines.append(Text.assemble((f"{'failed':<{LABEL}} ", "dim"), (marks, "red")))
        if rows >= TALL:
            since = f"{duration(end - begin)} ago"
            until = "now" if view.line.run.ended is None else "end"
            axis = f"{'':<{LABEL}} {since}{until:>{width - len(since)}}"
            lines.append(Text(axis, "dim"))
        return Text("\n").join(lines)

    def _details(self, view: WatchView, columns: int, rows: int) -> Text:
        lines = []
        shares = [(clean(name), part) for name, part in time_shares(view.story) if part >= A_SHARE]
        width = columns - LABEL - 1
        if shares and width > 0:
            marked = [
                (SHADES[n % len(SHADES)], name, part) for n, (name, part) in enumerate(shares)
            ]
            if rows >= TALL:
                bar = "".join(mark * round(part * width) for mark, _, part in marked)
                lines.append(Text(f"{'time':<{LABEL}} {bar[:width]}"))
            cells = [Text(f"{mark} {name} {100 * part:.0f} %") for mark, name, part in marked]
            label = "" if lines else "time"
            lines += _labelled(label, _rows(cells, width))
        events = max(1, min((rows - 16) // 4, 8))
        for label, value in details(view, self._zone, events=events):
            if isinstance(value, str):
                text = Text(clean(value), no_wrap=True)
                text.truncate(max(width, 1), overflow="ellipsis")
                lines += _labelled(label, [text])
            else:
                cells = [
                    Text(clean(cell), "red" if cell.endswith(ODD_RANK) else "") for cell in value
                ]
                lines += _labelled(label, _rows(cells, width))
        return Text("\n").join(lines)

    def _show_log(self) -> None:
        width, height = self._statics["log"].size
        last = self._log[-max(height, 1) :] or ("(nothing printed yet)",)
        shown = []
        for number, text in enumerate(last):
            label = "" if number else "log"
            line = Text.assemble(
                (f"{label:<{LABEL}} ", "dim"), printable(text.expandtabs(4).rstrip())
            )
            line.truncate(max(width, 1), overflow="ellipsis")
            shown.append(line)
        self._put("log", Text("\n", no_wrap=True).join(shown))


def _rows(cells: Sequence[Text], width: int) -> Iterator[Text]:
    """Yield lines of cells side by side; none is broken if it fits into a line of its own."""
    row = Text()
    for cell in cells:
        if row and row.cell_len + CELL_GAP + cell.cell_len > width:
            yield row
            row = Text()
        if cell.cell_len > width:
            cell.truncate(max(width, 1), overflow="ellipsis")
        row = Text.assemble(row, " " * CELL_GAP, cell) if row else cell
    if row:
        yield row


def _strip(chips: Sequence[Text], width: int) -> Text:
    """Return the chips in one line; the last ones are never left out."""
    label = "retries "
    left = width - len(label) - 4
    kept: list[Text] = []
    for chip in reversed(chips):
        left -= chip.cell_len + 3
        if left < 0 and kept:
            break
        kept.insert(0, chip)
    more = "… ─ " if len(kept) < len(chips) else ""
    line = Text.assemble((label, "dim"), more, Text(" ─ ").join(kept))
    line.truncate(max(width, 1), overflow="ellipsis")
    return line


def _labelled(label: str, rows: Iterable[Text]) -> Iterator[Text]:
    for row in rows:
        yield Text.assemble((f"{label[:LABEL]:<{LABEL}} ", "dim"), row)
        label = ""


class TextScreen(ModalScreen[None]):
    CSS = """
    TextScreen { background: $background; }
    TextScreen #title { text-style: bold; }
    TextScreen VerticalScroll > Static { width: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "back", "back"),
        Binding("space", "scroll('page_down')", "next page"),
        Binding("f", "whole", show=False),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
    ]

    def __init__(self, title: str, text: str, *, whole: str = "") -> None:
        super().__init__()
        self._title = title
        self._texts = [printable(each.expandtabs(4)) for each in (text, whole) if each]
        self._body = Static(Text(self._texts[0], no_wrap=True), markup=False)

    def compose(self) -> ComposeResult:
        yield Static(Text(clean(self._title)), id="title", markup=False)
        with VerticalScroll():
            yield self._body
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def action_back(self) -> None:
        """Return to the run; a second key that was typed meanwhile does nothing."""
        if self.is_current:
            self.dismiss()

    def action_whole(self) -> None:
        """Show the other text, if there are two: with all frames, or without."""
        self._texts.append(self._texts.pop(0))
        self._body.update(Text(self._texts[0], no_wrap=True))

    def action_scroll(self, how: str) -> None:
        getattr(self.query_one(VerticalScroll), f"scroll_{how}")(animate=False)


class ChoiceScreen(ModalScreen[str | None]):
    """Runs, one a line, as they go on; the result is the chosen one's name, or None to go back."""

    CSS = "ChoiceScreen { background: $background; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,escape", "back", "back")]

    def __init__(self, read: Callable[[], Sequence[RunLine]]) -> None:
        super().__init__()
        self._read = read
        self._lines = sorted(read(), key=lambda line: not line.alive)
        self._options = OptionList(*self._texts(), markup=False)

    def compose(self) -> ComposeResult:
        yield Static("Choose a run: a number, or up, down and enter", markup=False)
        yield self._options
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.set_interval(READ_EVERY, self._renew)

    def _texts(self) -> list[Text]:
        return [Text(_choice(number, line)) for number, line in enumerate(self._lines, start=1)]

    def _renew(self) -> None:
        """Show the runs as they are now, each where it was; new ones come last."""
        now = {line.run.name: line for line in self._read()}
        self._lines = [now.pop(line.run.name, line) for line in self._lines]
        self._lines.extend(now.values())
        for index, text in enumerate(self._texts()):
            if index < self._options.option_count:
                self._options.replace_option_prompt_at_index(index, text)
            else:
                self._options.add_option(text)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._choose(self._lines[event.option_index].run.name)

    def on_key(self, event: Key) -> None:
        if event.key.isdecimal() and 0 < int(event.key) <= len(self._lines):
            self._choose(self._lines[int(event.key) - 1].run.name)

    def action_back(self) -> None:
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
        yield Static(Text(f"{clean(self._text)} y/n", "bold"), markup=False)

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
        Binding("R", "restart", "retry", key_display="R"),
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
        """Suspend the app, unless no shell could continue it."""
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
        from rocsteady.run.checkpoints.script_resume import can_resume  # noqa: PLC0415 - only a retry needs it

        if not can_resume(self._view.line.run, self._journal):
            self._say("not restarted: it cannot resume; run rocsteady init once")
            return
        text = f"Restart {self._watcher.name} in the background, from its newest checkpoint?"
        self._confirm(text, self._controls.restart, "restarting")

    def action_report(self) -> None:
        from rocsteady.report.read_run import read_story  # noqa: PLC0415 - slow, seldom

        page = Page(self.size.width - SCROLLBAR, colour=False)
        try:
            story = read_story(self._journal, self._view.line, now=time.time())
            text = render_summary(story, page=page)
        except (RocsteadyError, OSError) as error:
            self._say(str(error))
        else:
            self.push_screen(TextScreen(f"Report of {self._watcher.name}", text))

    def action_runs(self) -> None:
        self.push_screen(ChoiceScreen(lambda: self._watcher.lines), self._choose)

    def action_keys(self) -> None:
        self.push_screen(TextScreen("Keys", HELP))

    def _choose(self, name: str | None) -> None:
        if name is not None:
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
        self._note.update(Text(clean(text)))

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
            title = f"Stacks of {self._watcher.name} (f: all frames)"
            self.push_screen(TextScreen(title, folded_stacks(text), whole=text))
        elif time.time() > asked + STACKS_WITHIN:
            self._stacks_asked = None
            self._say("no stacks: the supervisor did not answer")


def _choice(number: int, line: RunLine) -> str:
    step = "" if line.step is None else f"step {line.step:,}"
    total = f"/{line.total:,}" if line.total and step else ""
    name = clean(line.run.name)
    return f"{number}  {name:<24} {state_of(line):<12} {step}{total}"
