"""What ``rocsteady watch`` shows of a run: its journal, the end of its log, its heartbeats.

The journal is written every few seconds and its story may be long, so it is read less often the
longer that takes. The log and the heartbeats cost little and are read each time.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from datetime import datetime, tzinfo
from pathlib import Path

import msgspec
from rocsteady_train.untrusted_file import read_tail

from rocsteady.errors import JournalError
from rocsteady.hangs.heartbeat_pages import read_pages
from rocsteady.hangs.looking.gpu_counters import GpuUse, gpu_users
from rocsteady.hangs.values import Heartbeat
from rocsteady.model import RankRecord, RunOutcome, Value, WaitsFor
from rocsteady.run.attempt.injection import find_pages
from rocsteady.run.attempt.rank_waits import RankWaits, read_waits
from rocsteady.store.forecast import story_ahead
from rocsteady.store.journal import Journal
from rocsteady.store.location import run_folder
from rocsteady.store.redaction import Secrets
from rocsteady.store.run_names import check_name
from rocsteady.store.values import SAVED_GAUGE, RunLine, RunRecord
from rocsteady.system import procfs
from rocsteady.system.logfile import TEXT_STAMP
from rocsteady.typed_values import convert
from rocsteady.wording import plural

READ_EVERY = 2.0  # seconds, at least, between two readings of the journal
READING_SHARE = 0.015  # of the time that may go into them
LOG_TAIL = 16 * 1024  # bytes
TAIL_LINES = 60  # more than a screen has
RETRY_HEADING = "-- retry {} --"  # between the logs of two attempts
_OWN_TIME = re.compile(r"\[?(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d")  # that a script prints


class RankView(RankRecord, frozen=True, kw_only=True):
    quiet: float  # seconds since its last step


class LastSave(Value, frozen=True, kw_only=True):
    """The newest checkpoint, as far as it was seen to be saved."""

    at: float  # by the wall clock
    step: int | None


class WatchView(Value, frozen=True, kw_only=True):
    now: float
    line: RunLine
    story: RunRecord
    ranks: tuple[RankView, ...] = ()
    held_up: str = ""  # which rank holds up the others; "": none does, or nobody knows
    log: tuple[str, ...] = ()  # its last lines, of all attempts
    quiet: float | None = None  # seconds since the last step; None: there was none, or nobody knows
    saved: LastSave | None = None
    gpu_users: tuple[GpuUse, ...] = ()
    memory: tuple[int, int] | None = None  # bytes of the machine in use, and all


class RunWatcher:
    """Follows one run of a journal."""

    def __init__(self, journal: Journal, name: str, environment: Mapping[str, str]) -> None:
        check_name(name)
        self.name = name
        self.folder = run_folder(journal.place.folder, name)  # not as the journal says
        self._journal, self._environment = journal, environment
        self._read_at = self._wait = 0.0
        self._logs: dict[int, tuple[object, tuple[str, ...]]] = {}  # by attempt, as last read
        self.lines, self._line, self._story = self._read()

    def view(self, *, fresh: bool = False) -> WatchView:
        """Return the run as it is now. ``fresh``: read the journal whatever that costs."""
        if fresh or time.monotonic() >= self._read_at + self._wait:
            with contextlib.suppress(JournalError):  # locked for long: what is known stays
                self.lines, self._line, self._story = self._read()
        line = self._line
        pages = self._pages(line) if line.alive else None
        beats, waits = self._heartbeats(pages) if line.alive else (), read_waits(pages)
        if beats and line.step is not None and line.attempts:
            line = msgspec.structs.replace(
                line, step=max(line.step, *(it.base + it.step for it in beats))
            )
        now = time.time()
        return WatchView(
            now=now,
            line=line,
            story=self._story,
            ranks=_ranks(beats, waits),
            held_up=Secrets().text(waits.why),
            log=self._log(),
            quiet=_quiet(line, beats, now),
            saved=_saved(self._story, beats, now),
            gpu_users=self._gpu_users,
            memory=procfs.memory_of_machine(),
        )

    @property
    def has_ended(self) -> bool:
        return self._line.run.ended is not None or self._line.alive is False

    def _read(self) -> tuple[tuple[RunLine, ...], RunLine, RunRecord]:
        began = time.monotonic()
        lines = self._journal.runs()
        story = story_ahead(self._journal.story(self.name), lines, now=time.time())
        line = next(line for line in lines if line.run.name == self.name)
        shown_line = convert(Secrets().value(msgspec.to_builtins(line)), RunLine)
        self._gpu_users = gpu_users()
        self._read_at = time.monotonic()
        self._wait = max(READ_EVERY, (self._read_at - began) / READING_SHARE)
        return lines, shown_line, _without_secrets_in(story)

    def _log(self) -> tuple[str, ...]:
        """Return the last lines that the script printed, in all attempts."""
        lines: tuple[str, ...] = ()
        for number in range(max(1, self._line.attempts), 0, -1):
            begins = (RETRY_HEADING.format(number - 1),) if number > 1 else ()
            lines = (*begins, *self._log_of(number), *lines)
            if len(lines) >= TAIL_LINES:
                break
        return lines[-TAIL_LINES:]

    def _log_of(self, number: int) -> tuple[str, ...]:
        """Return the end of the log of one attempt; of each line, the time that it came."""
        path = self.folder / f"attempt-{number}.log"
        try:
            about = path.lstat()
            state = about.st_size, about.st_mtime_ns
            known, lines = self._logs.get(number, (None, ()))
            if state == known:
                return lines
            tail = read_tail(path, LOG_TAIL, follow=False)
        except OSError:
            return ()
        last = tail.decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
        text = "\n".join(line_with_time(line.rpartition("\r")[2]) for line in last)
        lines = tuple(Secrets().text(text).split("\n")) if text else ()
        self._logs[number] = state, lines
        return lines

    def _pages(self, line: RunLine) -> Path | None:
        supervisor = line.run.process.split(":")[1:2]
        run_id = "-".join((self.name, *supervisor, str(line.attempts)))
        return find_pages(run_id, self._environment)

    @staticmethod
    def _heartbeats(pages: Path | None) -> tuple[Heartbeat, ...]:
        return read_pages(pages) if pages is not None else ()


def line_with_time(line: str, zone: tzinfo | None = None) -> str:
    """Put the local time before a line of a kept log; leave it out where the script has its own."""
    stamp = TEXT_STAMP.match(line)
    if stamp is None:
        return line
    rest = line[stamp.end() :]
    if _OWN_TIME.match(rest):
        return rest
    try:
        return f"{datetime.fromisoformat(stamp[0].strip()).astimezone(zone):%H:%M:%S} {rest}"
    except (ValueError, OverflowError):  # a time that no calendar has
        return line


def line_of_text(view: WatchView, state: str, ahead: str, *, moving: bool) -> str:
    """Announce how a run is in one line."""
    line = view.line
    words = [state]
    if line.step is not None:
        # A run that is done has made all steps, even if fewer were seen.
        fewer = line.run.outcome is RunOutcome.DONE and line.step < (line.total or 0)
        of_all = f"/{line.total:,} ({line.step / line.total:.0%})" if line.total else ""
        total = "" if fewer else of_all
        words.append(f"step {line.step:,}{total}")
    if line.rate and moving:
        words.append(f"{line.rate:.2f} steps/s")
    if ahead:
        words.append(ahead)
    if line.attempts > 1:
        words.append(plural(line.attempts - 1, "retry", "retries"))
    if line.incidents:
        words.append(plural(line.incidents, "hang"))
    return f"{line.run.name}: {', '.join(words)}"


def _quiet(line: RunLine, beats: tuple[Heartbeat, ...], now: float) -> float | None:
    """Return the seconds since the last step of the last attempt."""
    last = max((beat.last_step or 0.0 for beat in beats), default=0.0)
    if last:
        return max(0.0, time.monotonic() - last)
    return None if line.last_progress is None else max(0.0, now - line.last_progress)


def _saved(story: RunRecord, beats: tuple[Heartbeat, ...], now: float) -> LastSave | None:
    """Return the last save: its step by the journal, and when it was by the process, if it can."""
    found = next((each for each in reversed(story.progress) if SAVED_GAUGE in each.gauges), None)
    live = max(beats, key=lambda beat: beat.saved or 0.0, default=None)
    step = round(found.gauges[SAVED_GAUGE].most) if found else None
    if live is not None and live.saved:
        at = now - max(0.0, time.monotonic() - live.saved)
        if live.base or len(story.attempts) == 1:
            step = live.base + live.saved_step
        elif found is None or found.start + found.width < at:
            step = None  # the journal does not have it yet
        return LastSave(at=at, step=step)
    return LastSave(at=min(now, found.start + found.width), step=step) if found else None


def _ranks(beats: tuple[Heartbeat, ...], waits: RankWaits) -> tuple[RankView, ...]:
    now, waits_for = time.monotonic(), {each.rank: each.waits_for for each in waits.ranks}
    ranks = {
        beat.rank: RankView(
            rank=beat.rank,
            step=beat.base + beat.step,
            phase=beat.phase,
            quiet=now - (beat.last_step or now),
            waits_for=waits_for.get(beat.rank, WaitsFor.UNKNOWN),
        )
        for beat in beats
        if beat.rank is not None
    }
    return tuple(ranks[rank] for rank in sorted(ranks))


def _without_secrets_in(story: RunRecord) -> RunRecord:
    """Hide secrets in all texts; progress has none, and may be long."""
    texts = msgspec.structs.replace(story, progress=())
    hidden = convert(Secrets().value(msgspec.to_builtins(texts)), RunRecord)
    return msgspec.structs.replace(hidden, progress=story.progress)
