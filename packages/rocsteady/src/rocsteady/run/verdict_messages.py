"""Turns verdicts into what a person is told: what changed, once each time."""

from __future__ import annotations

from collections.abc import Sequence

from rocsteady.colours import GREEN, RED, YELLOW
from rocsteady.hangs.heartbeat_pages import SettingOutcome, read_applied
from rocsteady.hangs.values import Heartbeat
from rocsteady.hangs.verdict import Verdict
from rocsteady.model import Blame, RunState, Sign, Strategy
from rocsteady.run.announcer import Announcer
from rocsteady.run.context import AttemptContext
from rocsteady.wording import duration

WORTH_SAYING = 4.0  # seconds: shorter pauses are inspected without a word
CALM = (RunState.HEALTHY, RunState.STARTING, RunState.FINISHING)


class VerdictMessages:
    """Remembers what was said of one attempt."""

    def __init__(self, announcer: Announcer, run: str, *, observe: bool = False) -> None:
        self._announcer = announcer
        self._run = run
        self._observe = observe
        self._said: RunState | None = None
        self._inspecting = False
        self._is_aloud = False  # a line about this pause was shown
        self._save_failed = False  # the last save, as it was last said
        self._not_finite = False  # the loss, as it was last said

    def tell(self, verdict: Verdict, *, inspected: bool) -> None:
        """Announce what is new. ``inspected``: there were snapshots since the last progress."""
        if verdict.condition in CALM:
            if self._inspecting and not inspected:
                if self._is_aloud:
                    self._announcer.say("progress resumed.", style=GREEN)
                self._inspecting, self._said, self._is_aloud = False, None, False
            elif verdict.examine and not self._inspecting and self._worth_saying(verdict):
                self._inspecting = True
                self._once("inspecting", f"{verdict.why}; inspecting stacks.")
        elif verdict.condition not in (RunState.HUNG, self._said):
            self._inspecting, self._said = True, verdict.condition
            place = f", at {verdict.place}" if _adds_place(verdict) else ""
            then = self._what_to_do(verdict) if verdict.condition is RunState.SLOW else ""
            who = _sentence(verdict.blame) if _stands_out(verdict.blame) else ""
            text = f"{verdict.condition.value}: {verdict.why}{place}.{who}{then}"
            if verdict.condition is RunState.SLOW:
                self._once(f"slow at {verdict.place}", text)
            else:
                self._is_aloud = True
                self._announcer.say(text)

    def _once(self, kind: str, text: str) -> None:
        """Announce this once in a run, as every validation is as slow as the one before it."""
        is_new = kind not in self._announcer.pauses
        self._announcer.pauses.add(kind)
        self._is_aloud |= is_new
        (self._announcer.say if is_new else self._announcer.note)(text)

    @staticmethod
    def _worth_saying(verdict: Verdict) -> bool:
        return verdict.condition is RunState.HEALTHY and verdict.quiet >= WORTH_SAYING

    def _what_to_do(self, verdict: Verdict) -> str:
        """Announce how long it is left alone, and what a person can type."""
        if self._observe:
            return " Only observing: rocsteady does not stop the run."
        act = f"To act now: rocsteady run --resume {self._run}, or rocsteady stop {self._run}."
        if verdict.apart:
            return f" rocsteady stops the run if the ranks of all hosts are stuck. {act}"
        proven = verdict.waits is not None and verdict.waits.closed
        doubt = "" if proven else " This is not proven to be a hang."
        left = (
            "rocsteady cannot observe the work itself and does not stop the run"
            if verdict.limit is None
            else f"rocsteady does not stop the run until {duration(verdict.limit)} after the last"
            " progress"
        )
        return f"{doubt} {left}. {act} To change the limit, use --hang-after."

    def withdrawn(self) -> None:
        """Announce that a verdict did not hold."""
        self._inspecting, self._said = False, None
        self._announcer.say(
            "not hung after all: the last check before stopping the run did not confirm the hang."
            " The run continues, and rocsteady will wait longer from now on."
        )

    def loss(self, heartbeats: Sequence[Heartbeat], before: int) -> None:
        """Announce that the loss became NaN or infinite, or finite again. Nothing is done."""
        spoilt = [beat for beat in heartbeats if beat.not_finite > beat.finite]
        if bool(spoilt) == self._not_finite:
            return
        self._not_finite = bool(spoilt)
        if spoilt:
            step = min((beat.base or before) + beat.not_finite for beat in spoilt)
            self._announcer.say(
                f"the loss became NaN or infinite at step {step:,}. The run continues.",
                style=YELLOW,
            )
        else:
            step = max((beat.base or before) + beat.finite for beat in heartbeats)
            self._announcer.say(f"the loss is finite again at step {step:,}.")

    def saves(self, heartbeats: Sequence[Heartbeat]) -> None:
        """Announce that the last checkpoint could not be saved, or that one was saved again."""
        failed = max((beat.save_failed or 0 for beat in heartbeats), default=0)
        if bool(failed) == self._save_failed:  # the next one that fails says nothing new
            return
        if failed:
            self._announcer.say(
                f"the checkpoint of step {failed:,} was not saved; the log says why. The run"
                " continues and tries again at each interval."
            )
        else:
            self._announcer.say("saving checkpoints works again.")
        self._save_failed = bool(failed)

    def hung(self, verdict: Verdict, then: str) -> None:
        """Announce that it is hung, where, and what is done about it."""
        if self._said is RunState.HUNG:
            return
        self._inspecting, self._said = True, RunState.HUNG
        place = f" Location: {verdict.place}." if _adds_place(verdict) else ""
        # That the ranks of one host are alike says nothing where another host has the culprit.
        who = "" if verdict.apart and not _stands_out(verdict.blame) else _sentence(verdict.blame)
        self._announcer.say(f"hung: {verdict.why}.{place}{who} {then}", style=RED)

    def blamed(self, found: Blame | None, before: Blame | None) -> None:
        """Announce which rank holds up the others, if the evidence adds something."""
        if found is not None and _stands_out(found) and found != before:
            self._announcer.say(f"evidence: {found.why}.")


def _adds_place(verdict: Verdict) -> bool:
    """Return whether the place is known, and not said with the rank."""
    return bool(verdict.place) and not (
        _stands_out(verdict.blame)
        and verdict.blame is not None
        and verdict.place in verdict.blame.why
    )


def _stands_out(found: Blame | None) -> bool:
    return found is not None and found.sign is not Sign.NONE


def _sentence(found: Blame | None) -> str:
    return f" {found.why[:1].upper()}{found.why[1:]}." if found else ""


REFUSALS_POLL_INTERVAL = 1.0  # seconds between looks


class RefusedSettings:
    """Looks for refusals in one attempt, and says each once."""

    def __init__(self, announcer: Announcer, context: AttemptContext, began: float) -> None:
        changes = context.strategy != Strategy()
        self._pages = context.pages if changes else None
        self._announcer = announcer
        self._due = began + REFUSALS_POLL_INTERVAL
        self._said: set[str] = set()

    def poll(self, now: float) -> None:
        """Announce what is new, now and then."""
        if now >= self._due:
            self._due = now + REFUSALS_POLL_INTERVAL
            self.say()

    def say(self) -> None:
        """Announce what is new."""
        for each in read_applied(self._pages) if self._pages else ():
            if each.outcome is SettingOutcome.REFUSED and each.setting not in self._said:
                self._said.add(each.setting)
                self._announcer.say(
                    f"{each.setting} was not applied; using the script's own setting:"
                    f" {each.why.rstrip('.')}."
                )
