"""One use of ``rocsteady probe``: what is planned is run, and shown as it comes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from rocsteady.exit_codes import INTERRUPTED
from rocsteady.model import Observation, ProbeOutcome
from rocsteady.probes.catalog import FRESH_START
from rocsteady.probes.comparison import ROUNDS, VariableSetting, compare
from rocsteady.probes.probe import LEVELS
from rocsteady.probes.suite import SOAK, Planned, Suite, line_of, total
from rocsteady.report.probe import (
    Comparison,
    ProbeLine,
    ProbeSummary,
    conclusion,
    render_comparison,
    render_probe,
    title_column,
)
from rocsteady.report.text_page import Page
from rocsteady.terminal.screen import layout, show, show_json, tell
from rocsteady.terminal.status_line import Redrawn, bar
from rocsteady.wording import plural, rough_duration

NOTHING_WRONG, SOMETHING_WRONG = 0, 1


class ProbeSession:
    """One use of the command: runs what is planned, and shows what comes of it as it comes."""

    def __init__(
        self, suite: Suite, planned: Sequence[Planned], *, level: str, software: str, as_json: bool
    ) -> None:
        self._suite, self._planned, self._level = suite, planned, level
        self._software, self._as_json = software, as_json
        self._width, self._colour = layout(sys.stdout)
        self._column = title_column(each.probe.title for each in planned)
        self._foot = Redrawn(sys.stderr if as_json else sys.stdout, self._width)
        self._seen: dict[str, list[ProbeLine]] = {}
        self._comparisons: list[Comparison] = []
        self._tables = 0  # rounds whose lines were all shown
        self._left = self._whole = 0.0  # seconds, about
        self.interrupted = False

    def announce(self, tried: Sequence[VariableSetting], rounds: int | None) -> None:
        """Say what will be done, before it is."""
        live = [each for each in self._planned if not each.why_not]
        seconds = sum(each.about for each in live)
        seconds += 0.0 if all(each.probe.fresh for each in live) else FRESH_START
        turns = (rounds or ROUNDS[depth(self._level)]) * (len(tried) + 1)
        if tried:
            seconds = (
                sum(each.about + (0 if each.probe.fresh else FRESH_START) for each in live) * turns
            )
        about = f"about {rough_duration(seconds)}"
        if self._level == SOAK and not tried:
            about += f" per round, {rounds} rounds" if rounds else " per round, until you stop it"
        self._left = self._whole = seconds
        what = plural(len(live), "probe")
        each = f", {turns} processes each" if tried else ""
        risky = [planned.probe.title for planned in live if planned.probe.risky]
        known = (
            f"These have reset the GPU on some machines: {', '.join(risky)}."
            if risky
            else "None of them is known to reset a GPU."
        )
        page = Page(self._width, colour=False)
        page.paragraph(f"Level {self._level}: {what}{each}, {about}. {known}")
        if self._as_json:
            tell(str(page).rstrip())
        else:
            show(str(page))

    def once(self) -> None:
        """Run all of it."""
        for number, planned in enumerate(self._planned):
            self._show(planned, self._run(planned, number))

    def soak(self, rounds: int | None) -> None:
        """Run all of it again and again."""
        done = 0
        while rounds is None or done < rounds:
            self._left = self._whole
            self.once()
            done += 1
            self._tables = done
            if not any(not planned.why_not for planned in self._planned):
                return

    def compare(self, tried: Sequence[VariableSetting], rounds: int) -> None:
        """Run each without and with settings."""
        for number, planned in enumerate(self._planned):
            if planned.why_not:
                self._show(planned, self._run(planned, number))
                continue
            self._compare(planned, number, tried, rounds)

    def conclude(self) -> int:
        """Say what it comes to, and return the exit code."""
        self._foot.clear()
        lines = [
            msgspec.structs.replace(
                line_of(None, total([line.observation for line in group])),
                what=group[-1].what,
                question=group[-1].question,
            )
            for group in self._seen.values()
        ]
        said = conclusion(lines, self._comparisons)
        outcomes = [line.observation for line in lines]
        compared = [arm.wrong for each in self._comparisons for arm in each.arms]
        summary = ProbeSummary(
            level=self._level,
            software=self._software,
            ok=sum(each.outcome is ProbeOutcome.OK for each in outcomes),
            wrong=sum(each.bad for each in outcomes) + sum(compared),
            not_run=sum(each.outcome is ProbeOutcome.NOT_RUN for each in outcomes),
            interrupted=self.interrupted,
            conclusion=tuple(said),
        )
        if self._as_json:
            print_json({"summary": summary})
        else:
            self._close(lines, said, wrong=bool(summary.wrong))
        if self.interrupted:
            return INTERRUPTED
        return SOMETHING_WRONG if summary.wrong else NOTHING_WRONG

    def _close(self, lines: Sequence[ProbeLine], said: Sequence[str], *, wrong: bool) -> None:
        page = Page(self._width, colour=self._colour)
        if any(len(group) > 1 for group in self._seen.values()):
            page.line(f"In {plural(max(map(len, self._seen.values())), 'round')}:")
            show(str(page) + "".join(map(self._rendered, lines)))
            page = Page(self._width, colour=self._colour)
        if self.interrupted:
            page.paragraph("Interrupted; the current probe was stopped.")
        for sentence in said:
            page.paragraph(sentence)
        if wrong:
            page.paragraph("Details: rocsteady probe --explain")
        show(str(page))

    def _run(self, planned: Planned, number: int) -> Observation:
        progress = self._progress(planned, number)
        progress(0)
        observation = self._suite.run(planned, progress=progress)
        self._left -= planned.about
        return observation

    def _progress(self, planned: Planned, number: int, more: str = "") -> Callable[[int], None]:
        began = time.monotonic()

        def draw(tries: int) -> None:
            if planned.why_not:
                return
            left = max(self._left - min(time.monotonic() - began, planned.about), 0.0)
            done = 1 - left / self._whole if self._whole else 1.0
            of = f" of {planned.tries:,}" if planned.tries else ""
            count = f"{tries:,}{of} {planned.probe.what}" if tries else "starting"
            self._foot.draw(
                f"{bar(done)} {number + 1} of {len(self._planned)}: {planned.probe.title}{more},"
                f" {count}, about {rough_duration(left)} left"
            )

        return draw

    def _compare(
        self, planned: Planned, number: int, tried: Sequence[VariableSetting], rounds: int
    ) -> None:
        probe = planned.probe

        def turn(setting: VariableSetting | None) -> Observation:
            more = f" with {setting.spelt}" if setting else " without"
            observation = self._suite.run(
                planned,
                {setting.name: setting.value} if setting else None,
                fresh=True,
                progress=self._progress(planned, number, more),
            )
            self._left -= planned.about
            if self._as_json:
                print_json({"observation": observation})
            elif observation.bad:
                self._foot.clear()
                show(self._rendered(line_of(probe, observation)))
            return observation

        comparison = compare((probe.name, probe.variant), tried, rounds, turn, os.environ)
        self._comparisons.append(comparison)
        self._foot.clear()
        if self._as_json:
            print_json({"comparison": comparison})
        else:
            show(render_comparison(comparison, width=self._width, colour=self._colour))

    def _show(self, planned: Planned, observation: Observation) -> None:
        line = line_of(planned.probe, observation)
        self._seen.setdefault(line.title, []).append(line)
        self._foot.clear()
        if self._as_json:
            print_json({"observation": observation, "one_in": line.one_in})
        elif not self._tables or observation.bad:
            show(self._rendered(line))

    def _rendered(self, line: ProbeLine) -> str:
        return render_probe(line, column=self._column, width=self._width, colour=self._colour)


def depth(level: str) -> int:
    """Return how far a level goes, from 0."""
    return len(LEVELS) - 1 if level == SOAK else int(level) - 1


def print_json(told: dict[str, object]) -> None:
    """Print one line for programs."""
    show_json({"version": 1, **told}, indent=0)
