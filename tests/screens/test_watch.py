"""The full screen: what it shows of a run at several sizes, and what its keys do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from samples import RANKS, RUNS, WATCHED
from textual.pilot import Pilot

from rocsteady.errors import RocsteadyError
from rocsteady.model import IntentKind, RunOutcome
from rocsteady.run.run_watcher import RankView, WatchView
from rocsteady.run.watch_requests import RequestKind
from rocsteady.screens import watch_app
from rocsteady.screens.watch import odd_ranks, state_in_words
from rocsteady.screens.watch_app import Controls, WatchApp
from rocsteady.store.values import Intent, Run, RunLine

if TYPE_CHECKING:
    from tests.conftest import Expected

HERE = Path(__file__).parent
SETTLED = 6  # looks at the screen, 0.2 s apart, that find the same
PAUSE = Intent(
    id=1, run=1, attempt=3, kind=IntentKind.PAUSE, what="attempt 3", machine="m", boot_id="b",
    process="", at=0.0,
)  # fmt: skip


class Watcher:
    """Stands in for the watcher of a journal."""

    def __init__(self, view: WatchView, folder: Path, lines: tuple[RunLine, ...]) -> None:
        self._view, self.folder, self.lines = view, folder, lines
        self.name = view.line.run.name

    def view(self) -> WatchView:
        return self._view


class Deck:
    """Runs the application on a terminal that is not there, and notes what it asks for."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.requests: list[RequestKind] = []
        self.stopped: list[str] = []
        self.opened: list[str] = []
        self.lines: tuple[RunLine, ...] = RUNS[:1]
        self.view = WATCHED
        patch.setattr(watch_app, "RunWatcher", self._watcher)
        patch.setattr(watch_app, "put_request", lambda _, kind: self.requests.append(kind))
        patch.setattr(watch_app, "can_resume", lambda *_: False)

    def _watcher(self, journal: object, name: str, environment: object) -> Watcher:
        del journal, environment
        self.opened.append(name)
        return Watcher(self.view, self.folder, self.lines)

    def _stop(self, run: Run) -> None:
        self.stopped.append(run.name)
        if len(self.stopped) > 1:
            raise RocsteadyError("it belongs to another user")

    def run(
        self,
        act: Callable[[Pilot[int]], Awaitable[None]],
        size: tuple[int, int] = (80, 24),
        *,
        ask: bool = False,
    ) -> int | None:
        journal: Any = None
        controls = Controls(stop=self._stop, restart=lambda _: None)
        app = WatchApp(journal, "calm-otter", controls, ask=ask, zone=UTC)

        async def go() -> None:
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                await act(pilot)

        asyncio.run(go())
        return app.return_value

    def screen(self, view: WatchView, size: tuple[int, int] = (80, 24)) -> str:
        self.view, texts = view, []

        async def look(pilot: Pilot[int]) -> None:
            seen = [text_of(pilot)]
            while len(seen) < SETTLED or len(set(seen[-SETTLED:])) > 1:
                await pilot.pause(0.2)
                seen.append(text_of(pilot))
            texts.append(seen[-1])
            await pilot.press("q")

        self.run(look, size)
        return texts[0]


def text_of(pilot: Pilot[int]) -> str:
    strips = pilot.app.screen._compositor.render_strips()
    return "".join(f"{strip.text.rstrip()}\n" for strip in strips)


@pytest.fixture
def deck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deck:
    monkeypatch.setenv("TERM", "xterm")
    return Deck(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("name", "view", "size"),
    [
        ("watch", WATCHED, (80, 24)),
        ("watch-wide", WATCHED, (160, 40)),
        ("watch-ranks", RANKS, (80, 24)),
    ],
)
def test_the_screen_is_as_expected(
    name: str, view: WatchView, size: tuple[int, int], deck: Deck, expected: Expected
) -> None:
    screen = deck.screen(view, size)

    assert max(map(len, screen.splitlines())) <= size[0]
    expected(HERE / "expected_watch" / f"{name}.txt", screen)


@pytest.mark.parametrize("size", [(40, 10), (20, 3)])
def test_every_size_can_be_drawn(deck: Deck, size: tuple[int, int]) -> None:
    lines = deck.screen(RANKS, size).splitlines()
    assert len(lines) == size[1]


def test_what_a_script_prints_is_neither_markup_nor_control(deck: Deck) -> None:
    log = ("\x1b[2J\x1b]0;title\x07", "[bold]not bold[/bold] [/]", "全角" * 60)
    shown = deck.screen(msgspec.structs.replace(WATCHED, log=log))

    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\\x1b[2J" in shown
    assert "[bold]not bold[/bold] [/]" in shown


def test_the_keys_act_on_the_run(deck: Deck) -> None:
    async def act(pilot: Pilot[int]) -> None:
        await pilot.press("p", "s", "x", "n", "x", "y")
        await pilot.press("x", "y")
        await pilot.pause()
        assert "it belongs to another user" in text_of(pilot)
        await pilot.press("R")
        assert "not restarted" in text_of(pilot)
        await pilot.press("question_mark")
        await pilot.pause()
        assert "GPU memory" in text_of(pilot)
        await pilot.press("j", "space", "q")
        assert len(pilot.app.screen_stack) == 1
        await pilot.press("q")

    assert deck.run(act) == 0
    assert deck.requests == [RequestKind.PAUSE, RequestKind.STACKS]
    assert deck.stopped == ["calm-otter", "calm-otter"]


def test_a_paused_run_is_continued_and_is_not_stalled(deck: Deck) -> None:
    story = msgspec.structs.replace(RANKS.story, intents=(PAUSE,))
    deck.view = msgspec.structs.replace(RANKS, story=story)

    async def act(pilot: Pilot[int]) -> None:
        await pilot.press("p", "q")

    deck.run(act)
    assert deck.requests == [RequestKind.CONTINUE]
    assert state_in_words(deck.view.line, story) == "paused"
    assert state_in_words(RANKS.line, RANKS.story) == "stalled"


def test_a_run_that_ended_is_only_shown_and_gives_the_exit_code(deck: Deck) -> None:
    run = msgspec.structs.replace(WATCHED.line.run, ended=WATCHED.now, outcome=RunOutcome.NOT_DONE)
    line = msgspec.structs.replace(WATCHED.line, run=run)
    deck.view = msgspec.structs.replace(WATCHED, line=line)

    async def act(pilot: Pilot[int]) -> None:
        await pilot.press("p", "x")
        await pilot.press("q")

    assert deck.run(act) == 76
    assert (deck.requests, deck.stopped) == ([], [])


def test_of_several_runs_one_is_chosen(deck: Deck) -> None:
    deck.lines = RUNS

    async def act(pilot: Pilot[int]) -> None:
        await pilot.press("2")
        await pilot.press("l", "down", "enter")
        await pilot.press("ctrl+c")

    assert deck.run(act, ask=True) == 130
    assert deck.opened == ["calm-otter", "wary-fox", "wary-fox"]


def rank(number: int, step: int, phase: str = "backward", quiet: float = 9.0) -> RankView:
    return RankView(rank=number, step=step, phase=phase, quiet=quiet)


def test_the_odd_rank_is_the_one_behind_or_alone_in_its_phase() -> None:
    assert odd_ranks([rank(0, 9), rank(1, 9), rank(2, 5)]) == {2}
    assert odd_ranks([rank(0, 9), rank(1, 9), rank(2, 9, "data")]) == {2}
    assert odd_ranks([rank(0, 9), rank(1, 8), rank(2, 9)]) == set()  # read between two steps
    assert odd_ranks([rank(0, 9, quiet=0.1), rank(1, 9), rank(2, 9, "data", 0.1)]) == set()
    assert odd_ranks([rank(0, 9)]) == set()
