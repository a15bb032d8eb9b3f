"""How far an attempt is: by a pattern of the job, by its processes' pages, or by what it prints."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.output import PrintedProgress
from rocsteady.hangs.values import Heartbeat
from rocsteady.store.values import SAVED_GAUGE, Bucket, Sample
from rocsteady.system import procfs
from rocsteady.system.child_end import Exit, exit_of_zombie

PRINTED, EPOCH, SAVED = "printed", "epoch", "saved "  # counts, by their kind; saved in a unit
SAVED_STEP = f"{SAVED}step"
READ = "read"  # when the checkpoint that led an attempt on was last written, by it or before it
ONE_OFF = {PRINTED: 1, SAVED_STEP: 1}  # one more may be another way to count the same


class ProgressCounts:
    """The most that was seen of each count."""

    def __init__(self) -> None:
        self._step = 0
        self._counts: dict[str, int] = {}

    def passes(self, step: int | None, counts: Mapping[str, int]) -> bool:
        """Note how far an attempt came; return whether that is further than all before it.

        ``step`` is None where nothing confirms it: then one of the other counts must be higher.
        What is saved that was not before is further in any case: it is not made again. So is an
        attempt that began where an earlier one has come to, or saved over what it began with.
        """
        further = (step or 0) > self._step + bool(self._step)
        if step is None:
            further = any(self._is_higher(*each) for each in counts.items())
        saved = [each for each in counts.items() if each[0].startswith((SAVED, READ))]
        further = further or any(self._is_higher(*each) for each in saved)
        self._step = max(self._step, step or 0)
        for kind, count in counts.items():
            self._counts[kind] = max(count, self._counts.get(kind, 0))
        return further

    def _is_higher(self, kind: str, count: int) -> bool:
        before = self._counts.get(kind)
        if before is None:
            return kind == READ or (kind.startswith(SAVED) and bool(self._step))  # the first saved
        return count > before + ONE_OFF.get(kind, 0)


SET_BACK = 60.0  # seconds by which a clock goes back that was set
MAX_STEP_TIMES = 20_000  # entries; every second one is forgotten when there are more
MAX_SAVES = 100  # latest ones


UNRECORDED = 1.0  # seconds, about, that a supervisor which was killed has not written down


class StepTimes:
    """Moments by the wall clock, and the step of each."""

    def __init__(self, earlier: Iterable[Bucket] = ()) -> None:
        self._at: list[float] = []
        self._steps: list[int] = []
        self._latest = 0  # step
        self._apart = 0.0  # seconds, at least, between two entries
        self._saves: deque[tuple[float, int]] = deque(maxlen=MAX_SAVES)  # when each ended
        for bucket in earlier:
            self.add(bucket.first_progress or bucket.start, bucket.first_step)
            self.add(bucket.last_progress or bucket.start, bucket.last_step)
        self._is_earlier = True  # nothing was added since

    def add(self, at: float, step: int) -> None:
        self._latest, self._is_earlier = step, False
        if self._at and at < self._at[-1] - SET_BACK:  # what was before it cannot be compared
            self._at.clear()
            self._steps.clear()
        if self._steps and (step == self._steps[-1] or at < self._at[-1] + self._apart):
            return
        self._at.append(at)
        self._steps.append(step)
        if len(self._at) > MAX_STEP_TIMES:
            del self._at[1:-1:2], self._steps[1:-1:2]
            self._apart = (self._at[-1] - self._at[0]) / len(self._at)

    def saved(self, at: float, step: int) -> None:
        self._saves.append((at, step))

    def since(self, when: float) -> tuple[tuple[float, int], ...]:
        first = bisect_left(self._at, when)
        return tuple(zip(self._at[first:], self._steps[first:], strict=False))

    def covers(self, when: float) -> bool:
        """Return whether a moment is not before the first step; older files are of other runs."""
        return bool(self._at) and self._at[0] <= when

    def step_at(self, when: float) -> tuple[int, int]:
        """Return the step that a file written at a moment has in it: at least, and at most."""
        index = bisect_left(self._at, when)
        if self._is_earlier and index == len(self._at) > 1:
            pace = (self._latest - self._steps[0]) / max(self._at[-1] - self._at[0], UNRECORDED)
            more = 2 * pace * (when - self._at[-1] + UNRECORDED)
            return self._latest, self._latest + max(0, round(more))
        most = self._steps[index] if index < len(self._steps) else self._latest
        if not 0 < index < len(self._steps) or most < self._steps[index - 1]:
            return most, most
        return self._steps[index - 1], most

    def saved_step(self, when: float) -> tuple[int, int]:
        """Return the step of a checkpoint, and by how many that may be wrong.

        It was written by the save that ended next, if a process told of one.
        """
        least, most = self.step_at(when)
        told = next((step for at, step in self._saves if at >= when), least)
        return told if least <= told <= most else least, most - least


# Which of the processes that wrote a heartbeat page are still alive.
#
# A page outlives its process. What a command does after its training process has ended is ordinary
# work, so pages of processes that are gone must not take part in a verdict.


class LiveProcesses:
    """Remembers when each process of one attempt was born, so that a reused pid is not mistaken."""

    def __init__(self) -> None:
        self._births: dict[int, int] = {}
        self._beats: dict[int, int] = {}  # when a process was last seen alive, or beat since then
        self._ended: set[int] = set()  # ranks that were seen to have ended
        self._has_failed = False  # one of them, as far as was seen
        self.first_failure: Exit | None = None  # if its launcher had not reaped it yet

    def among(self, heartbeats: Iterable[Heartbeat]) -> tuple[Heartbeat, ...]:
        """Return the heartbeats of processes that are alive, or that may be.

        A rank that is gone stays as long as others of its group live: they may wait for it.
        """
        beats = tuple(heartbeats)
        gone = {beat.pid for beat in beats if self._is_gone(beat)}
        self._look_how([it for it in beats if it.pid in gone and it.rank is not None])
        ranks = {beat.rank for beat in beats if beat.pid not in gone and beat.rank is not None}
        return tuple(
            beat
            for beat in beats
            if beat.pid not in gone or (ranks and beat.rank is not None and beat.rank not in ranks)
        )

    def _look_how(self, ended: list[Heartbeat]) -> None:
        """Read how the first rank failed. Of several at once nobody knows which was the first."""
        new = [beat for beat in ended if beat.pid not in self._ended]
        self._ended |= {beat.pid for beat in new}
        if not new or self._has_failed:
            return
        how = exit_of_zombie(new[0].pid, new[0].rank) if len(new) == 1 else None
        if how is None or how.code != 0:
            self._has_failed, self.first_failure = True, how

    def _is_gone(self, beat: Heartbeat) -> bool:
        """Return whether a process has ended. In a container, its pid may mean nothing here.

        Such a one has never been seen under this pid, and it beats until its own code is done.
        """
        if beat.pid in self._births and self._beats.get(beat.pid) != beat.beats and not beat.ended:
            self._beats[beat.pid] = beat.beats  # it beat since it was last seen: no need to look
            return False
        birth = _birth(beat.pid)
        if birth is not None and self._births.setdefault(beat.pid, birth) == birth:
            self._beats[beat.pid] = beat.beats
            return False
        known = beat.pid in self._births and self._beats.get(beat.pid) == beat.beats
        return known or beat.ended


def _birth(pid: int) -> int | None:
    """Return when a living process was started; None if it has ended or cannot be seen."""
    try:
        stat = procfs.stat(pid)
    except (OSError, ValueError, IndexError):
        return None
    return None if stat.dead else stat.start


# Steps, and the part of them by which two counts of the same may differ.
MIN_STEPS, MAX_DIFFERENCE = 2, 0.25


class PrintedCounter:
    """A printed counter beside the steps that a page counts from the start of its process."""

    def __init__(self) -> None:
        self.latest: int | None = None
        self.resets = False  # it began again: a bar of one epoch, say
        self.goes_on = False  # in the next epoch, from where it was: it is the run's
        self._first: tuple[int, int] | None = None
        self._most = 0  # by which it was ahead
        self.at_most = math.inf  # that it can have been ahead
        self._made = (0, 0)  # steps at the last two looks: it was printed after the first of them
        self._epoch: int | None = None  # of its own bar
        self._passed = self._in_epoch = 0  # in the epochs before it, and in it
        self._of_epoch: int | None = None

    @property
    def in_epochs(self) -> int | None:
        """What the bars of all epochs counted; None if the counter is not one of an epoch."""
        return None if self._epoch is None else self._passed + self._in_epoch

    def update(self, progress: PrintedProgress, made: int) -> None:
        """Take what is printed, and the steps that were made by then, or a little later."""
        printed = progress.n
        if progress.of_epoch and progress.epoch != self._epoch:
            begins_again = printed < self._in_epoch
            self.goes_on = self.goes_on or (self._epoch is not None and not begins_again)
            if begins_again:  # it went to its end, which a look may have missed
                self._passed += self._of_epoch or self._in_epoch
            self._epoch, self._in_epoch, self._of_epoch = progress.epoch, printed, progress.total
        self._in_epoch = max(self._in_epoch, printed) if progress.of_epoch else self._in_epoch
        earlier, self._made = self._made[0], (self._made[1], made)
        if printed == self.latest:
            return
        self.at_most = min(self.at_most, printed + 1 - earlier)  # a script may count from 0
        self.resets = self.resets or (self.latest is not None and printed < self.latest)
        self.latest, self._last = printed, (printed, made)
        self._most = printed - made if self._first is None else max(self._most, printed - made)
        self._first = self._first or self._last

    @property
    def ahead(self) -> int | None:
        """By how much the script's own step is ahead; None if it does not count steps."""
        if self.resets or self._first is None:
            return None
        printed, made = (last - first for first, last in zip(self._first, self._last, strict=True))
        alike = made >= MIN_STEPS and abs(printed - made) <= max(MIN_STEPS, made * MAX_DIFFERENCE)
        return self._most if alike else None


MAX_EPOCH_DIFFERENCE = 0.1  # of an epoch's steps: they are read a little after it is printed


class PrintedEpochs:
    """How many steps all epochs have, where a script says how many epochs there are."""

    def __init__(self) -> None:
        self._count: int | None = None
        self._seen: dict[int, int] = {}  # the steps that were made when an epoch was first printed

    def update(self, printed: PrintedProgress, made: int) -> None:
        if printed.epoch is not None and printed.epochs:
            self._count = printed.epochs
            self._seen.setdefault(printed.epoch, made)

    def steps(self, batches: int) -> int | None:
        """Return the steps in all: by the batches of the loader and the epochs that have passed.

        The first that is printed is left out: a script may have resumed in the middle of it.
        """
        each, (_, *later) = batches, sorted(self._seen) or [0]
        if len(later) > 1 and (made := self._seen[later[-1]] - self._seen[later[0]]) > 0:
            each = round(made / (later[-1] - later[0]))
            accumulated = max(1, round(batches / max(1, each)))  # batches to a step
            if abs(batches / accumulated - each) <= each * MAX_EPOCH_DIFFERENCE:
                each = math.ceil(batches / accumulated)
        return self._count * each if self._count and each else None


def steps_made(heartbeats: Iterable[Heartbeat]) -> int:
    """Return the steps of all trainings of a command, one after the other.

    Ranks make the same ones, and so does who is started again after an error.
    """
    trainings: list[list[Heartbeat]] = [[]]
    for beat in sorted((each for each in heartbeats if each.step), key=lambda each: each.made):
        last = trainings[-1]
        if last and all(it.ended and not it.raised and it.since <= beat.made for it in last):
            trainings.append([])
        trainings[-1].append(beat)
    return sum(max((beat.step for beat in training), default=0) for training in trainings)


class AttemptProgress:
    """The steps of one attempt, as they are seen.

    A page counts from the start of its process: the step that it says it went on from comes on top.
    Where it does not say, a printed counter that grows with the page tells by how much the script's
    own step is ahead of it; else it is what the checkpoint had ``before``, which nothing confirms.
    Where the job names a pattern, ``by_log``, that alone counts: its units are not those of a page.
    """

    def __init__(  # noqa: PLR0913 - all are keyword arguments
        self,
        printed: Callable[[], PrintedProgress | None],
        total: int | None,
        *,
        before: int = 0,
        resumed: bool = False,
        step_times: StepTimes | None = None,
        by_log: bool = False,
    ) -> None:
        self.heartbeats: tuple[Heartbeat, ...] = ()
        self.before = before  # steps that this attempt did not have to make
        self._unsure = 0  # by how many those may be wrong, where the script resumed by itself
        self._resumed = resumed or before > 0
        self._counter = PrintedCounter()
        self._by_log = by_log
        self._step_times = step_times or StepTimes()
        self._printed = printed
        self._said: PrintedProgress | None = None  # before the pages were read
        self._total = total
        self._epochs = PrintedEpochs()
        self.first_step: int | None = None
        self._step = 0  # that was seen last
        self._signs = 0  # of work
        self._worked: tuple[float, float] | None = None  # since when, and when last
        self._saved = 0.0  # when it last saved, by the monotonic clock
        self._saving = 0.0  # seconds of saving so far
        self._saved_at: int | None = None  # steps of its own
        self.saves = 0  # how often it saved

    def resumes_at(self, step: int, unsure: int = 0) -> None:
        """Count from the step of a checkpoint that the script has read by itself."""
        if not self._resumed:
            self.before, self._resumed, self._unsure = step, True, unsure

    @property
    def unsure(self) -> int:
        """By how many steps the count may be wrong."""
        return self._unsure if self.own_step is None else 0

    @property
    def step(self) -> int | None:
        """How far it is; None if nothing tells."""
        own = self.own_step
        if own is not None:
            return own
        if self._counting:
            return self.before + self._made
        return self.before or None if self._by_log else self._counter.latest

    @property
    def own_step(self) -> int | None:
        """How far it is by the script's own count; None if nothing confirms it."""
        if not self._counting:
            printed = self._printed()
            unclear = self._resumed and self._counter.resets and not self._by_log
            if printed is None or unclear:
                return None
            in_epochs = None if self._by_log else self._counter.in_epochs
            return printed.n if in_epochs is None else in_epochs
        steps = [beat.base + beat.step for beat in self._counting if beat.base]
        if steps:
            return max(steps)
        if not self._resumed or any(beat.total for beat in self._counting):
            return self._made
        ahead = self._counter.ahead
        if ahead is not None and ahead <= self.before <= self._counter.at_most:
            ahead = self.before
        return None if ahead is None else self._made + ahead

    @property
    def own_counts(self) -> dict[str, int]:
        """What else the script counts, in units that are not known."""
        printed = self._counter.latest
        return {} if printed is None or self._counter.resets else {PRINTED: printed}

    @property
    def _made(self) -> int:
        return steps_made(self._counting)

    @property
    def _counting(self) -> tuple[Heartbeat, ...]:
        """The pages by which steps are counted."""
        return () if self._by_log else self.heartbeats

    @property
    def _began_at(self) -> int:
        return max((beat.base for beat in self._counting), default=0) or self.before

    @property
    def seconds(self) -> float:
        """From the first step to the last."""
        return self._worked[1] - self._worked[0] if self._worked else 0.0

    def _stepped_at(self) -> float:
        """Return when the last step was made, by the clock; who looks may be late."""
        now, mono = time.time(), time.monotonic()
        furthest = max(self._counting, key=lambda beat: beat.base + beat.step, default=None)
        made = furthest and furthest.last_step
        return now - max(0.0, mono - made) if made else now

    @property
    def wrote_checkpoint(self) -> bool:
        """Return whether it wrote one, or may have: who has no page cannot be seen to."""
        if not self.heartbeats:
            return bool(self.step)
        return any(beat.seconds_in.get("checkpoint") for beat in self.heartbeats)

    def look(self) -> None:
        """Note what is printed, before the pages are read: a step is counted, and then printed."""
        self._said = self._printed()

    def seen(
        self, now: float, verdict: Verdict, measured: Mapping[str, float] | None = None
    ) -> Sample:
        """Take a look into account, and return it for the journal."""
        printed = self._said
        if printed is not None:
            self._counter.update(printed, self._made)
        step = self.step or 0
        if step > self._began_at and self.first_step is None:
            self.first_step = step
        if step != self._step:
            self._step = step
            self._step_times.add(self._stepped_at(), step)
        self._see_work(now, step)
        return Sample(
            at=time.time(),
            step=step,
            verdict=verdict.condition,
            quiet=verdict.quiet,
            began_at=self._began_at,
            total=self._total_of(step, printed),
            seconds_in=self.heartbeats[0].seconds_in if self.heartbeats else {},
            measured={**(measured or {}), **self._newly_saved(step)},
        )

    def _newly_saved(self, step: int) -> dict[str, float]:
        """Return up to which step it saved since the last look, if it tells; count the saves."""
        last = max(self.heartbeats, key=lambda beat: beat.saved or 0.0, default=None)
        saving = sum(beat.seconds_in.get("checkpoint", 0.0) for beat in self.heartbeats)
        told = last is not None and (last.saved or 0.0) > self._saved
        made = steps_made(self.heartbeats)
        if (told or saving > self._saving) and made != self._saved_at:
            self.saves, self._saved_at = self.saves + 1, made
        self._saving = saving
        if last is None or not told:
            return {}
        self._saved = last.saved or 0.0
        at = step + (last.saved_step - last.step if self._counting else 0)
        self._step_times.saved(time.time() - max(0.0, time.monotonic() - self._saved), at)
        return {SAVED_GAUGE: max(0.0, at)}

    def _total_of(self, step: int, printed: PrintedProgress | None) -> int | None:
        """Return the steps in all; None where nothing tells, or what does is below the step."""
        total = self._total or next((beat.total for beat in self._counting if beat.total), None)
        if total is None and printed is not None:
            self._epochs.update(printed, self._made)
            batches = max((beat.batches for beat in self._counting), default=0)
            in_epoch = printed.total if printed.of_epoch and not self._counter.goes_on else None
            of_one = self._counter.resets or printed.total == (batches or in_epoch)
            of_one = of_one or (printed.unnamed and not batches)
            counts_steps = not self._counting or self._counter.ahead is not None
            if counts_steps and not (of_one and printed.total):
                total = printed.total
            else:
                total = self._epochs.steps(batches or in_epoch or 0)
        return total if total is None or step <= total else None

    def _see_work(self, now: float, step: int) -> None:
        """Note when work goes on that may be lost; also by pages that do not count it."""
        signs = step + (steps_made(self.heartbeats) if self._by_log else 0)
        if signs > self._began_at and self._worked is None:
            self._worked = (now, now)
        if signs != self._signs and self._worked is not None:
            self._worked = (self._worked[0], now)
        self._signs = signs
