"""What ``rocsteady watch`` shows of a run at one moment, in words; ``watch_app`` draws it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from enum import Enum
from itertools import groupby, pairwise
from statistics import median

from rocsteady.colours import BOLD, GREEN, RED, YELLOW
from rocsteady.hangs.frames import is_users_file, path_of, place_of_frame
from rocsteady.hangs.proof.stack_frames import own_part
from rocsteady.model import IntentKind, Outcome, RunOutcome, RunState, Value, WaitsFor
from rocsteady.report.plot_points import gauge, in_attempts, rates
from rocsteady.report.story import NO_CHANGES, settings_of
from rocsteady.report.wait_diagram import spoken
from rocsteady.run.telling.run_watcher import RankView, WatchView
from rocsteady.store.run_account import open_incident
from rocsteady.store.values import (
    AttemptRecord,
    Bucket,
    Gauge,
    RunLine,
    RunRecord,
)
from rocsteady.wording import distance, duration, moment, plural, rough_duration, size, spare

RANK_QUIET = 5.0  # seconds without a step, after which a rank in a phase of its own stands out
RANKS_SHOWN = 64
ODD_RANK = "*"  # after a rank that stands out
FAILED = "✗"  # a try that failed
LOSS, HOST = "loss", "host memory"  # gauges of the journal
READINGS_FOR = 180.0  # seconds; older ones say nothing of now
WAITS_AFTER = 15.0  # seconds after the end of an attempt; a restart alone takes less
STILL_AFTER, STILL_STEPS = 3.0, 5  # seconds without a step, and usual steps: then no speed is shown
SPIKE = 5.0  # times the usual step: what is slower is cut off, so that the rest can be seen
SHADES = "█▓▒░"
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a Braille cell, by row
Detail = tuple[str, str | tuple[str, ...]]  # a label; a text to wrap, or cells that stay whole
_OF_GPU = re.compile(r"(GPU \d+) (\w+)")


class Badge(Enum):
    STARTING = "starting"
    RESUMING = "resuming"
    TRAINING = "training"
    FINISHING = "finishing"
    SLOW = "slow"
    HUNG = "hung"
    RESTARTING = "restarting"
    WAITING = "waiting"  # for something to clear up, before the next try
    PAUSED = "paused"
    DONE = "done"
    STOPPED = "stopped"
    CRASHED = "crashed"
    GAVE_UP = "gave up"
    INTERRUPTED = "interrupted"  # its supervisor is gone

    @property
    def style(self) -> str:
        match self:
            case Badge.TRAINING | Badge.FINISHING | Badge.DONE:
                return GREEN
            case Badge.HUNG | Badge.CRASHED | Badge.GAVE_UP:
                return RED
            case Badge.STARTING | Badge.RESUMING | Badge.RESTARTING:
                return BOLD
            case _:
                return YELLOW


class Chip(Value, frozen=True, kw_only=True):
    """One launch, or several that ended alike, in the strip of retries."""

    text: str
    style: str


class WatchPlot(Value, frozen=True, kw_only=True):
    """Values over time, a line for each attempt, and the last of them in words."""

    label: str
    lines: tuple[tuple[tuple[float, float], ...], ...]  # of moment and value
    last: str
    low: float
    high: float  # that is drawn; a spike may be higher
    span: str

    @property
    def begin(self) -> float:
        return self.lines[0][0][0]


def is_paused(story: RunRecord) -> bool:
    return story.run.ended is None and any(
        intent.kind is IntentKind.PAUSE and intent.outcome is None for intent in story.intents
    )


def condition(view: WatchView) -> Badge:
    line, story = view.line, view.story
    last = story.attempts[-1] if story.attempts else None
    if line.run.ended is not None:
        by_itself = last is not None and last.outcome is Outcome.BY_ITSELF
        other = Badge.CRASHED if by_itself else Badge.GAVE_UP
        ends = {RunOutcome.DONE: Badge.DONE, RunOutcome.STOPPED: Badge.STOPPED}
        return ends.get(line.run.outcome, other)
    if line.alive is False:
        return Badge.INTERRUPTED
    if is_paused(story):
        return Badge.PAUSED
    if open_incident(story) is not None:
        return Badge.HUNG
    if last is not None and last.ended is not None:
        late = view.now - last.ended > WAITS_AFTER
        return Badge.WAITING if late else Badge.RESTARTING
    return Badge.STARTING if last is None else _of_attempt(view, last)


def _of_attempt(view: WatchView, last: AttemptRecord) -> Badge:
    own = [bucket for bucket in view.story.progress if bucket.attempt == last.number]
    if not any(bucket.last_progress is not None for bucket in own):
        return Badge.RESUMING if last.number > 1 else Badge.STARTING
    if view.line.stalled:
        return Badge.SLOW
    if RunState.FINISHING in own[-1].seconds_as:
        return Badge.FINISHING
    doubted = RunState.SLOW in own[-1].seconds_as and own[-1].last_progress is None
    return Badge.SLOW if doubted else Badge.TRAINING


def is_moving(view: WatchView) -> bool:
    """Whether steps are being made now, by how long they usually take."""
    if condition(view) is not Badge.TRAINING or not view.line.rate:
        return False
    usual = STILL_STEPS / view.line.rate
    return view.quiet is None or view.quiet < max(STILL_AFTER, usual)


def part_done(line: RunLine) -> float | None:
    if line.run.outcome is RunOutcome.DONE:
        return 1.0
    return min(1.0, line.step / line.total) if line.total and line.step is not None else None


def odd_ranks(ranks: Sequence[RankView]) -> frozenset[int]:
    """Return the ranks that differ from most others: behind, or quiet in a phase of their own."""
    if len(ranks) < 2:  # noqa: PLR2004 - there is nothing to differ from
        return frozenset()
    step = Counter(rank.step for rank in ranks).most_common(1)[0][0]
    behind = frozenset(rank.rank for rank in ranks if rank.step < step - 1)
    if behind:
        return behind
    phase, count = Counter(rank.phase for rank in ranks).most_common(1)[0]
    if count * 2 <= len(ranks):
        return frozenset()
    return frozenset(
        rank.rank for rank in ranks if rank.phase != phase and rank.quiet >= RANK_QUIET
    )


def pace(view: WatchView) -> str:
    """Return how far it is, and how fast; never a speed while nothing moves."""
    line, words = view.line, []
    if line.step is not None:
        total = f"/{line.total:,}" if line.total and line.step <= line.total else ""
        words.append(f"step {line.step:,}{total}")
    if is_moving(view) and line.rate:
        slow = line.rate < 0.1  # noqa: PLR2004 - fewer digits would say nothing
        words.append(f"{1 / line.rate:.0f} s/step" if slow else f"{line.rate:.3g}/s")
    elif condition(view) in (Badge.TRAINING, Badge.SLOW, Badge.HUNG) and view.quiet:
        words.append(f"no step for {duration(view.quiet)}")
    return "  ".join(words)


def headline(view: WatchView) -> str:  # noqa: PLR0911 - one for each condition
    """Return what to know first where it does not train: where it hangs, or what to type."""
    story, line = view.story, view.line
    hang = open_incident(story) if line.run.ended is None else None
    if hang is not None:
        return f"{spoken(hang.place)}: collecting stacks, then restarting"
    match condition(view):
        case Badge.STARTING:
            return "torch is imported; no step yet" if view.ranks else "Python starts and imports"
        case Badge.INTERRUPTED:
            return f"rocsteady is gone. To resume: rocsteady run --resume {line.run.name}"
        case Badge.CRASHED | Badge.GAVE_UP:
            return _failed(story)
        case Badge.WAITING | Badge.RESTARTING:
            return story.decisions[-1].decision.why if story.decisions else ""
        case Badge.RESUMING | Badge.DONE:
            hung = [it.place for it in story.incidents if it.verdict is RunState.HUNG and it.place]
            more = f": rocsteady report {line.run.name}" if line.run.ended else ""
            return f"hung at {spoken(hung[-1])}{more}" if hung else ""
        case _:
            return ""


def _failed(story: RunRecord) -> str:
    if not story.failures:
        return f"rocsteady report {story.run.name}"
    named = story.failures[-1].failure
    place = f"{named.line}: " if named.line else ""
    return f"{place}{named.seen[0] if named.seen else named.title}"


def facts(view: WatchView, zone: tzinfo | None = None) -> Iterator[tuple[str, str]]:
    """Yield labels and values: how long, until when, and what a failure would cost."""
    line, story, now = view.line, view.story, view.now
    yield "elapsed", duration((line.run.ended or now) - line.run.started)
    ahead, due = story.forecast, story.deadline
    if line.run.ended is not None:
        yield "ended", moment(line.run.ended, now=now, zone=zone, brief=True)
    elif line.alive is not False:
        yield "ETA", _eta(view, zone)
    if due is not None:
        end = ahead.at if ahead and line.run.ended is None and not _waits(view) else None
        if line.run.outcome is RunOutcome.DONE:
            end = line.run.ended
        left = distance(due, now=now) if end is None else spare(end, due)
        yield "deadline", f"{moment(due, now=now, zone=zone, brief=True)}, {left}"
    yield "saved", _saved(view, zone)


def _waits(view: WatchView) -> bool:
    """Return whether nothing moves, so that nobody knows when it ends."""
    return condition(view) in (Badge.HUNG, Badge.SLOW, Badge.WAITING)


def _eta(view: WatchView, zone: tzinfo | None) -> str:
    ahead, now = view.story.forecast, view.now
    young = now - view.line.run.started < 60  # noqa: PLR2004 - a minute
    if view.line.total is None:
        return "not yet" if young else "unknown (no total)"
    if ahead is None or _waits(view):
        return "not yet" if young or ahead is None else "unknown"
    span = f"{rough_duration(max(0.0, ahead.early - now))} to {rough_duration(ahead.late - now)}"
    left = f"in {rough_duration(max(0.0, ahead.at - now))}"
    return f"{moment(ahead.at, now=now, zone=zone, brief=True)}, {left} ({span})"


def _saved(view: WatchView, zone: tzinfo | None) -> str:
    saved = view.saved
    if saved is None:
        return "nothing yet" if view.line.run.ended is None else "nothing seen"
    step = "" if saved.step is None else f", step {saved.step:,}"
    if view.line.run.ended is not None:
        return f"{moment(saved.at, now=view.now, zone=zone, brief=True)}{step}"
    return f"{duration(max(0.0, view.now - saved.at))} ago{step}"


def retries(story: RunRecord) -> tuple[Chip, ...]:
    """Return the launches as a strip; neighbours that ended alike are one chip."""
    if len(story.attempts) < 2:  # noqa: PLR2004 - nothing was retried
        return ()
    chips = []
    for attempt in story.attempts:
        changed = settings_of(attempt)
        words = "" if changed == NO_CHANGES else f" {changed}"
        mark, style = _end_of(attempt, story)
        chips.append(Chip(text=f"{mark}{words}", style=style))
    groups = ((chip, len(list(same))) for chip, same in groupby(chips))
    return tuple(
        Chip(text=f"{chip.text} x{count}" if count > 1 else chip.text, style=chip.style)
        for chip, count in groups
    )


def _end_of(attempt: AttemptRecord, story: RunRecord) -> tuple[str, str]:
    at = "" if attempt.last_step is None else f" at {attempt.last_step:,}"
    if attempt.ended is None:
        return ("▶", GREEN) if story.run.ended is None else (f"{FAILED} cut off{at}", YELLOW)
    if attempt.outcome is Outcome.BY_ITSELF and attempt.exit_code == 0:
        return f"✓{at}", GREEN
    what = "hung" if attempt.outcome is Outcome.HUNG else "stopped"
    if attempt.outcome is Outcome.BY_ITSELF:
        what = f"signal {attempt.signal}" if attempt.signal else f"exit {attempt.exit_code}"
    return f"{FAILED} {what}{at}", RED


def curves(story: RunRecord) -> tuple[WatchPlot, ...]:
    buckets = in_attempts(story.progress, story.attempts)
    found = []
    losses = tuple(tuple((p.at, p.mean) for p in line) for line in gauge(buckets, LOSS) if line)
    if losses:
        values = [value for line in losses for _, value in line]
        found.append(_curve("loss", losses, values, "{:.3g}".format))
    made = rates(buckets, story.intents)
    times = tuple(tuple((p.at, 1 / p.mean) for p in line) for line in made if line)
    if times:
        values = [value for line in times for _, value in line]
        found.append(_curve("step time", times, values, duration, most=SPIKE * median(values)))
    return tuple(found)


def _curve(
    label: str,
    lines: tuple[tuple[tuple[float, float], ...], ...],
    values: Sequence[float],
    text: Callable[[float], str],
    most: float = float("inf"),
) -> WatchPlot:
    low, high = (0.0 if label == "step time" else min(values)), min(max(values), most)
    if high <= low:
        low, high = low - 0.5, low + 0.5
    return WatchPlot(
        label=label, lines=lines, last=text(values[-1]), low=low, high=high,
        span=_span(text(min(values)), text(max(values))),
    )  # fmt: skip


def _span(low: str, high: str) -> str:
    """Write the unit once if both have the same."""
    number, _, unit = low.partition(" ")
    return f"{number}..{high}" if unit and high.endswith(f" {unit}") else f"{low}..{high}"


def failure_marks(story: RunRecord, begin: float, end: float, width: int) -> str:
    """Return a cross at each moment at which a try failed, on the axis of the curves."""
    cells = [" "] * width
    for attempt in story.attempts:
        if attempt.ended and attempt.ended >= begin and _end_of(attempt, story)[1] == RED:
            cells[round((width - 1) * (attempt.ended - begin) / max(end - begin, 1.0))] = FAILED
    return "".join(cells).rstrip()


def braille(curve: WatchPlot, begin: float, end: float, width: int, height: int) -> list[str]:
    """Draw a curve in Braille dots, two to a column and four to a row."""
    cells = [[0] * width for _ in range(height)]
    right, bottom = 2 * width - 1, 4 * height - 1
    seconds, span = max(end - begin, 1.0), curve.high - curve.low
    for line in curve.lines:
        spots = [
            (
                round(right * min(1.0, max(0.0, (at - begin) / seconds))),
                round(bottom * min(1.0, max(0.0, (curve.high - value) / span))),
            )
            for at, value in line
        ]
        for (x0, y0), (x1, y1) in pairwise(spots) if len(spots) > 1 else [(spots[0], spots[0])]:
            far = max(abs(x1 - x0), abs(y1 - y0), 1)
            for part in range(far + 1):
                x, y = x0 + (x1 - x0) * part // far, y0 + (y1 - y0) * part // far
                cells[y // 4][x // 2] |= DOTS[y % 4][x % 2]
    return ["".join(chr(0x2800 + cell) if cell else " " for cell in row) for row in cells]


def time_shares(story: RunRecord) -> tuple[tuple[str, float], ...]:
    """Return the phases of the last attempt by their share, longest first, without its start."""
    spent: Counter[str] = Counter()
    for bucket in of_last_attempt(story.progress):
        spent.update(bucket.seconds_in)
    if len(spent) > 1:
        del spent["starting"]
    whole = sum(spent.values())
    return tuple((name, part / whole) for name, part in spent.most_common() if whole and part > 0)


def details(view: WatchView, zone: tzinfo | None = None, *, events: int = 3) -> Iterator[Detail]:
    """Yield GPUs, memory, ranks, and what was said last."""
    yield from _gauges(view)
    yield from _ranks(view.ranks, view.held_up)
    label = "events"
    for message in view.story.messages[-events:] if events else ():
        yield label, f"{moment(message.at, now=view.now, zone=zone, brief=True)} {message.text}"
        label = ""


def of_last_attempt(progress: Sequence[Bucket]) -> tuple[Bucket, ...]:
    return tuple(bucket for bucket in progress if bucket.attempt == progress[-1].attempt)


def _gauges(view: WatchView) -> Iterator[Detail]:
    """Yield a row for each GPU with all who use it, and one for the memory of the machine."""
    buckets = of_last_attempt(view.story.progress)
    last: dict[str, Gauge] = {}
    for bucket in buckets:
        if bucket.start > buckets[-1].start - READINGS_FOR:
            last |= bucket.gauges
    gpus: dict[str, dict[str, Gauge]] = {}
    for name, read in last.items():
        if found := _OF_GPU.fullmatch(name):
            gpus.setdefault(found[1], {})[found[2]] = read
    for use in view.gpu_users:
        gpus.setdefault(f"GPU {use.gpu}", {})
    units = (("busy", "busy ", "%"), ("temperature", "", "°C"), ("power", "", "W"))
    for label, now in sorted(gpus.items()):
        texts = [
            f"{title}{now[name].mean:.0f} {unit}" for name, title, unit in units if name in now
        ]
        if "memory" in now:
            texts.append(f"{size(now['memory'].mean)} in use")
        texts += [
            f"pid {use.pid}{f' ({use.user})' if use.user else ''} {size(use.used_bytes)}"
            for use in view.gpu_users
            if label == f"GPU {use.gpu}"
        ]
        yield label, tuple(texts)
    texts = [f"this run {size(last[HOST].mean)}"] if HOST in last else []
    if view.memory is not None and view.line.run.ended is None:
        used, whole = view.memory
        texts.append(f"machine {size(used)} of {size(whole)} in use")
    if texts:
        yield "memory", tuple(texts)


def _does(rank: RankView) -> str:
    """Return what a rank does, as far as it matters to the others."""
    words = {
        WaitsFor.UNKNOWN: rank.phase,
        WaitsFor.NOTHING: rank.phase,
        WaitsFor.MAYBE_RANKS: "waits in PyTorch",
        WaitsFor.TIME: "sleeps",
        WaitsFor.STOPPED: "stopped",
        WaitsFor.ENDED: "ended",
    }
    return words.get(rank.waits_for, f"waits for {rank.waits_for.value}")


def _ranks(ranks: Sequence[RankView], held_up: str) -> Iterator[Detail]:
    """Yield the ranks side by side; those that stand out are never left out."""
    if len(ranks) < 2:  # noqa: PLR2004 - one rank is the run
        return
    odd = odd_ranks(ranks)
    shown = sorted(ranks, key=lambda each: (each.rank not in odd, each.rank))[:RANKS_SHOWN]
    cells = [
        f"{each.rank}: {each.step:,} {_does(each)}{f' {ODD_RANK}' if each.rank in odd else ''}"
        for each in sorted(shown, key=lambda each: each.rank)
    ]
    if len(ranks) > len(shown):
        cells.append(f"and {plural(len(ranks) - len(shown), 'other rank')}")
    yield "ranks", tuple(cells)
    if held_up:
        yield "", held_up
    if odd:
        yield "", f"{ODD_RANK} behind the others, or waiting in another phase"


class ListedThread(Value, frozen=True, kw_only=True):
    """One thread of ``stacks.txt``: whose it is, and its frames, innermost first."""

    process: str
    thread: str
    frames: tuple[str, ...]

    @property
    def own(self) -> tuple[str, ...]:
        """The frames of the user's own code, as places."""
        frames = own_part([each for each in self.frames if not each.startswith("[native]")])
        return tuple(place_of_frame(each) for each in frames if is_users_file(path_of(each)))


def read_stacks(text: str) -> tuple[ListedThread, ...]:
    process = ""
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("process "):
            process = line
        elif line.startswith("  thread "):
            found.append((process, line.strip(), []))
        elif line.startswith("      ") and found:
            found[-1][2].append(line.strip())
    return tuple(ListedThread(process=a, thread=b, frames=tuple(c)) for a, b, c in found)


def folded_stacks(text: str) -> str:
    """Return the user's own frames first, and of libraries only how many frames they have."""
    stacks = read_stacks(text)
    if not stacks:
        return text
    lines: list[str] = []
    for stack in stacks:
        if stack.own:
            first, *rest = stack.own
            lines.append(spoken(first))
            lines += [f"  called from {spoken(place)}" for place in rest]
            if folded := len(stack.frames) - len(stack.own):
                lines.append(f"  {plural(folded, 'frame')} of libraries")
            lines += [f"  {stack.process}, {stack.thread}", ""]
    others = [stack for stack in stacks if not stack.own]
    if not lines:
        lines += ["No thread is in your own code.", ""]
    if others:
        lines.append(f"{plural(len(others), 'thread')} only in libraries:")
        lines += [f"  {stack.process.split(' (')[0]}, {stack.thread}" for stack in others]
    return "\n".join(lines)
