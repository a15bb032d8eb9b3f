"""The full screen: what it shows of a run at several sizes, and what its keys do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from samples import NOW, RUNS
from textual.pilot import Pilot
from textual.widgets._footer import FooterKey
from watch_samples import (
    CRASHED,
    DONE,
    FIRST,
    HUNG,
    HUNG_AGAIN,
    OF_RANKS,
    RESUMING,
    STORY,
    TRAINING,
    WAITING,
    attempt,
    loss,
)

from rocsteady.errors import RocsteadyError
from rocsteady.model import IntentKind, WaitsFor
from rocsteady.run.attempt.watch_requests import RequestKind
from rocsteady.run.checkpoints import script_resume
from rocsteady.run.telling.run_watcher import RankView, WatchView
from rocsteady.screens import watch_app
from rocsteady.screens.watch import (
    Badge,
    braille,
    condition,
    curves,
    details,
    facts,
    failure_marks,
    folded_stacks,
    is_moving,
    odd_ranks,
    pace,
    part_done,
    read_stacks,
    retries,
    time_shares,
)
from rocsteady.screens.watch_app import Controls, RunView, TextScreen, WatchApp
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
        self.view = TRAINING
        patch.setattr(watch_app, "RunWatcher", self._watcher)
        patch.setattr(watch_app, "put_request", lambda _, kind: self.requests.append(kind))
        patch.setattr(script_resume, "can_resume", lambda *_: False)

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
        ("watch", TRAINING, (80, 24)),
        ("watch-tall", TRAINING, (120, 40)),
        ("watch-wide", TRAINING, (200, 50)),
        ("watch-ranks", OF_RANKS, (80, 24)),
        ("watch-hung", HUNG, (80, 24)),
        ("watch-resuming", RESUMING, (80, 24)),
        ("watch-done", DONE, (80, 24)),
        ("watch-crashed", CRASHED, (80, 24)),
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
    lines = deck.screen(OF_RANKS, size).splitlines()
    assert len(lines) == size[1]


def test_what_a_script_prints_or_a_journal_has_is_neither_markup_nor_control(deck: Deck) -> None:
    log = ("\x1b[2J\x1b]0;title\x07", "[bold]not bold[/bold] [/]", "全角" * 60)
    *earlier, last = TRAINING.story.progress
    last = msgspec.structs.replace(last, seconds_in={"\x1b]0;title\x07\u202e": 1e6})
    story = msgspec.structs.replace(TRAINING.story, progress=(*earlier, last))
    shown = deck.screen(msgspec.structs.replace(TRAINING, log=log, story=story))

    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b]0;title\\x07\\u202e" in shown
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
        assert isinstance(pilot.app.screen, TextScreen)
        await pilot.press("j", "space", "q")
        assert len(pilot.app.screen_stack) == 1
        await pilot.press("q")

    assert deck.run(act) == 0
    assert deck.requests == [RequestKind.PAUSE, RequestKind.STACKS]
    assert deck.stopped == ["calm-otter", "calm-otter"]


def test_a_paused_run_is_continued_and_is_not_stalled(deck: Deck) -> None:
    story = msgspec.structs.replace(OF_RANKS.story, intents=(PAUSE,))
    deck.view = msgspec.structs.replace(OF_RANKS, story=story)

    async def act(pilot: Pilot[int]) -> None:
        await pilot.press("p", "q")

    deck.run(act)
    assert deck.requests == [RequestKind.CONTINUE]
    assert condition(deck.view) is Badge.PAUSED
    assert condition(OF_RANKS) is Badge.SLOW


def test_a_run_that_ended_is_only_shown_and_gives_the_exit_code(deck: Deck) -> None:
    deck.view = CRASHED

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


def test_the_chooser_follows_the_runs_and_has_only_keys_of_its_own(deck: Deck) -> None:
    deck.lines = RUNS

    async def act(pilot: Pilot[int]) -> None:
        await pilot.press("l")
        await pilot.pause()
        assert "p pause" not in text_of(pilot)
        first, *others = RUNS
        watcher = pilot.app._watcher  # type: ignore[attr-defined]
        newer = msgspec.structs.replace(
            first, run=msgspec.structs.replace(first.run, name="new-newt")
        )
        watcher.lines = (newer, msgspec.structs.replace(first, step=7123), *others)
        await pilot.press("p", "x")  # keys of the run's screen
        await pilot.pause(1.2)
        shown = text_of(pilot)
        assert "step 7,123" in shown
        assert f"{len(RUNS) + 1}  new-newt" in shown
        await pilot.press("escape")
        await pilot.pause()
        assert len(pilot.app.screen_stack) == 1
        await pilot.press("q")

    assert deck.run(act) == 0
    assert (deck.requests, deck.stopped) == ([], [])


def test_failures_are_on_the_axis_of_the_curves() -> None:
    begin, width = NOW - 100.0, 51
    failed = attempt(1, ended=NOW - 50, outcome=HUNG_AGAIN.outcome, last_step=9)
    story = msgspec.structs.replace(RESUMING.story, attempts=(failed,))

    assert failure_marks(story, begin, NOW, width) == f"{'':25}✗"
    assert failure_marks(story, NOW - 40, NOW, width) == ""  # before the first value


def rank(number: int, step: int, phase: str = "backward", quiet: float = 9.0) -> RankView:
    return RankView(rank=number, step=step, phase=phase, quiet=quiet)


def test_the_odd_rank_is_the_one_behind_or_alone_in_its_phase() -> None:
    assert odd_ranks([rank(0, 9), rank(1, 9), rank(2, 5)]) == {2}
    assert odd_ranks([rank(0, 9), rank(1, 9), rank(2, 9, "data")]) == {2}
    assert odd_ranks([rank(0, 9), rank(1, 8), rank(2, 9)]) == set()  # read between two steps
    assert odd_ranks([rank(0, 9, quiet=0.1), rank(1, 9), rank(2, 9, "data", 0.1)]) == set()
    assert odd_ranks([rank(0, 9)]) == set()


def test_ranks_that_wait_for_another_are_shown_as_such() -> None:
    waits = (WaitsFor.NOTHING, WaitsFor.RANKS)
    ranks = tuple(
        msgspec.structs.replace(rank(number, 9, "compute"), waits_for=each)
        for number, each in enumerate(waits)
    )
    view = msgspec.structs.replace(OF_RANKS, ranks=ranks, held_up="rank 0 holds up the others")

    shown = dict(details(view, events=0))

    assert shown["ranks"] == ("0: 9 compute", "1: 9 waits for the other ranks")
    assert shown[""] == view.held_up


@pytest.mark.parametrize(
    ("view", "found"),
    [
        (TRAINING, Badge.TRAINING),
        (HUNG, Badge.HUNG),
        (RESUMING, Badge.RESUMING),
        (WAITING, Badge.WAITING),
        (DONE, Badge.DONE),
        (CRASHED, Badge.CRASHED),
    ],
)
def test_each_state_has_a_badge_and_only_what_trains_has_a_speed(
    view: WatchView, found: Badge
) -> None:
    assert condition(view) is found
    assert is_moving(view) is (found is Badge.TRAINING)
    assert ("/s" in pace(view)) is (found is Badge.TRAINING)


def test_a_run_that_stands_still_has_no_speed_before_it_is_called_slow() -> None:
    still = msgspec.structs.replace(TRAINING, quiet=9.0)

    assert condition(still) is Badge.TRAINING
    assert not is_moving(still)
    assert "/s" not in pace(still)


def test_what_is_known_has_a_range_a_slack_and_the_age_of_the_checkpoint() -> None:
    told = dict(facts(TRAINING, UTC))

    assert list(told) == ["elapsed", "ETA", "deadline", "saved"]
    assert told["ETA"] == "12:20, in 20 min (17 min to 25 min)"
    assert told["saved"] == "12 s ago, step 4,500"


def test_nothing_is_to_spare_while_nobody_knows_the_end() -> None:
    assert dict(facts(TRAINING, UTC))["deadline"] == "18:00, 5 h 40 min to spare"
    assert dict(facts(HUNG, UTC))["deadline"] == "18:00, in 6 h"
    assert dict(facts(DONE, UTC))["deadline"] == "18:00, 6 h to spare"


def test_without_a_total_there_is_no_eta() -> None:
    line = msgspec.structs.replace(TRAINING.line, total=None)
    told = dict(facts(msgspec.structs.replace(TRAINING, line=line), UTC))

    assert "in " not in told["ETA"]
    assert part_done(line) is None
    assert part_done(DONE.line) == 1.0


def test_the_strip_groups_launches_that_ended_alike() -> None:
    story = RESUMING.story
    assert len(retries(story)) == 2  # twice hung at the same step, and the one that resumes
    assert retries(msgspec.structs.replace(story, attempts=(FIRST,))) == ()
    crash = attempt(2, ended=NOW, outcome=HUNG_AGAIN.outcome, last_step=9)
    assert len(retries(msgspec.structs.replace(story, attempts=(FIRST, crash)))) == 2


def test_curves_go_across_restarts_and_join_no_two_attempts() -> None:
    one, *_ = STORY.progress
    early = tuple(
        msgspec.structs.replace(
            one, attempt=1, start=NOW - 6000 + n, width=1, first_step=n, last_step=n + 1,
            first_progress=NOW - 6000 + n, last_progress=NOW - 5999.5 + n,
            gauges={"loss": loss(3.0 - n / 100)},
        )
        for n in range(60)
    )  # fmt: skip
    story = msgspec.structs.replace(STORY, progress=(*early, *STORY.progress))

    found = {curve.label: curve for curve in curves(story)}

    assert [len(line) for line in found["loss"].lines] == [60, 14]
    assert [len(line) for line in found["step time"].lines] == [59, 13]


def test_a_curve_fills_its_width_and_a_slow_step_does_not_flatten_it() -> None:
    times = next(curve for curve in curves(STORY) if curve.label == "step time")
    drawn = braille(times, times.begin, NOW, 60, 3)

    assert [len(row) for row in drawn] == [60, 60, 60]
    usual = median(value for line in times.lines for _, value in line)
    assert times.high <= 5 * usual
    assert any(row.strip() for row in drawn)


def test_the_start_is_no_share_of_the_training() -> None:
    first, *rest = STORY.progress
    first = msgspec.structs.replace(first, seconds_in={"starting": 999.0, "data": 1.0})
    shares = time_shares(msgspec.structs.replace(STORY, progress=(first, *rest)))

    assert "starting" not in dict(shares)
    assert sum(part for _, part in shares) == pytest.approx(1.0)


STACKS = """\
process 10 python (child of 9)
  thread 10 python: state S, 1.00 s of cpu, waits for a lock
      [native] futex_wait
      wait (threading.py:320)
      __getitem__ (train.py:24)
      main (train.py:61)
  thread 11 pin: state S, 0.00 s of cpu, waits for a lock
      run (threading.py:1000)
"""


def test_stacks_have_the_users_frames_first_and_fold_the_rest() -> None:
    first, second = read_stacks(STACKS)

    assert first.own == ("train.py:24 __getitem__", "train.py:61 main")
    assert second.own == ()
    lines = folded_stacks(STACKS).splitlines()
    assert lines[0].startswith("train.py:24")
    assert not any("threading.py" in line for line in lines)
    assert folded_stacks("No stacks: py-spy is missing.") == "No stacks: py-spy is missing."


def test_the_screen_follows_the_size_of_the_terminal(deck: Deck) -> None:
    async def act(pilot: Pilot[int]) -> None:
        view = pilot.app.query_one(RunView)
        assert not view.has_class("wide")
        await pilot.resize_terminal(200, 50)
        await pilot.pause(0.3)
        assert view.has_class("wide")
        await pilot.resize_terminal(30, 8)
        await pilot.pause(0.3)
        assert not view.has_class("wide")
        await pilot.press("q")

    assert deck.run(act) == 0


def test_the_newest_line_of_the_log_is_seen_as_soon_as_there_is_less_room(
    deck: Deck, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(pilot: Pilot[int]) -> None:
        await pilot.pause(0.5)
        monkeypatch.setattr(RunView, "show", lambda *_: None)  # what comes once a second
        await pilot.resize_terminal(80, 33)
        await pilot.pause(0.5)
        seen.append(text_of(pilot))
        await pilot.press("q")

    seen: list[str] = []
    deck.run(act, (80, 38))
    assert TRAINING.log[-1].split()[-1] in seen[0]


def test_keys_can_be_clicked(deck: Deck) -> None:
    async def act(pilot: Pilot[int]) -> None:
        while not deck.requests:  # the footer is composed anew while the application starts
            for key in pilot.app.query(FooterKey):
                if key.description == "pause" and key.region and not deck.requests:
                    await pilot.click(key)
            await pilot.pause(0.1)
        await pilot.press("q")

    deck.run(act)
    assert deck.requests == [RequestKind.PAUSE]
