"""Turns verdicts into what a person is told: what changed, once each time."""

from __future__ import annotations

from collections.abc import Sequence

from rocsteady.failures.difference import NAMES
from rocsteady.hangs.heartbeat_pages import SettingOutcome, read_applied
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.values import Heartbeat
from rocsteady.model import Blame, RunState, Sign, Strategy
from rocsteady.run.context import AttemptContext, HangPlace, hang_place
from rocsteady.run.telling.announcer import Announcer
from rocsteady.run.telling.events import Moving, Quiet

WORTH_NOTING = 4.0  # seconds: shorter pauses are inspected without a word
CALM = (RunState.HEALTHY, RunState.STARTING, RunState.FINISHING)


class VerdictMessages:
    def __init__(
        self, announcer: Announcer, *, observe: bool = False, before: HangPlace | None = None
    ) -> None:
        self._announcer = announcer
        self._observe = observe
        self._before = before  # where the attempt before this one hung
        self._said: RunState | None = None
        self._inspecting = False
        self._quiet = 0.0  # seconds, when it was last said to be slow
        self._is_aloud = False  # a line about this pause was shown
        self._save_failed = False  # the last save, as it was last said
        self._not_finite = False  # the loss, as it was last said

    def tell(self, verdict: Verdict, step: int | None, *, inspected: bool) -> None:
        """Announce what is new. ``inspected``: there were snapshots since the last progress."""
        lasts = verdict.condition is RunState.HEALTHY and verdict.quiet >= WORTH_NOTING
        if verdict.condition in CALM:
            if self._inspecting and not inspected:
                if self._is_aloud:
                    self._announcer.show(Moving(step=step, after=self._quiet))
                self._inspecting, self._said, self._is_aloud = False, None, False
            elif verdict.examine and lasts and not self._inspecting:
                self._inspecting = True
                self._announcer.note(f"{verdict.why}; stacks read.")
        elif verdict.condition not in (RunState.HUNG, self._said):
            self._inspecting, self._said, self._quiet = True, verdict.condition, 0.0
            self._pause(Quiet(verdict=verdict, step=step, observe=self._observe))
        if self._said is not None:
            self._quiet = max(self._quiet, verdict.quiet)

    def _pause(self, event: Quiet) -> None:
        """Announce a slow place once in a run: every validation is as slow as the one before."""
        is_new = event.verdict.place not in self._announcer.pauses
        if event.verdict.condition is RunState.SLOW:
            self._announcer.pauses.add(event.verdict.place)
        else:
            is_new = True
        self._is_aloud |= is_new
        (self._announcer.show if is_new else self._announcer.keep)(event)

    def withdrawn(self) -> None:
        """Announce that the final check refuted a hang."""
        self._inspecting, self._said = False, None
        self._announcer.say(
            "false alarm: the final check did not confirm the hang. The run continues;"
            " rocsteady will wait longer next time."
        )

    def loss(self, since: int, step: int | None) -> None:
        """Announce that the loss became NaN or infinite, or finite again. Nothing is done."""
        if bool(since) == self._not_finite:
            return
        self._not_finite = bool(since)
        if since:
            self._announcer.say(
                f"the loss became NaN or infinite at step {since:,}. The run continues."
            )
        else:
            self._announcer.say(f"the loss is finite again at step {step or 0:,}.")

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

    def hung(self, verdict: Verdict, step: int | None) -> None:
        if self._said is RunState.HUNG:
            return
        self._inspecting, self._said = True, RunState.HUNG
        again = bool(verdict.place) and hang_place(verdict, step) == self._before
        self._announcer.show(Quiet(verdict=verdict, step=step, again=again, observe=self._observe))

    def blamed(self, found: Blame | None, before: Blame | None) -> None:
        """Announce which rank holds up the others, if the evidence adds something."""
        if found is not None and found.sign is not Sign.NONE and found != before:
            self._announcer.say(f"evidence: {found.why}.")


FEW_STEPS = 3  # after which a loss that is not finite is more than a batch that was left out


class SpoiltLoss:
    """Since when the loss is not finite, by what processes tell and by what is printed."""

    def __init__(self) -> None:
        self._since: int | None = None  # the step, when such a loss was first printed

    def since(
        self, heartbeats: Sequence[Heartbeat], before: int, printed: int, step: int, *, ended: bool
    ) -> int:
        """Return the step; 0: it is finite, as far as that can be seen.

        ``printed``: how many losses in a row were not. At the end one is enough.
        """
        told = [
            it.not_finite + (it.base or before) for it in heartbeats if it.not_finite > it.finite
        ]
        self._since = (step if self._since is None else self._since) if printed else None
        if self._since is not None and (
            ended or printed > FEW_STEPS or (printed > 1 and step - self._since > FEW_STEPS)
        ):
            told.append(max(1, self._since))
        return min(told, default=0)


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
        if now >= self._due:
            self._due = now + REFUSALS_POLL_INTERVAL
            self.say()

    def say(self) -> None:
        for each in read_applied(self._pages) if self._pages else ():
            if each.outcome is SettingOutcome.REFUSED and each.setting not in self._said:
                self._said.add(each.setting)
                name, why = NAMES.get(each.setting, each.setting), each.why.rstrip(".")
                self._announcer.say(f"{name} was not applied; using the script's own: {why}.")
