"""One use of ``rocsteady probe``: what is planned is run, and shown as it comes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rocsteady.exit_codes import INTERRUPTED
from rocsteady.model import Observation, ProbeOutcome
from rocsteady.probe.catalog import FRESH_START
from rocsteady.probe.suite import Planned, Suite, line_of
from rocsteady.screens.probe import (
    ProbeLine,
    ProbeSummary,
    conclusion,
    render_probe,
    title_column,
)
from rocsteady.screens.progress import Progress, progress
from rocsteady.screens.screen import layout, show, show_json, tell
from rocsteady.screens.text_page import Page
from rocsteady.wording import plural, rough_duration

NOTHING_WRONG, SOMETHING_WRONG = 0, 1


class ProbeSession:
    """Runs the planned probes and shows each result as soon as it is there."""

    def __init__(
        self, suite: Suite, planned: Sequence[Planned], *, level: str, software: str, as_json: bool
    ) -> None:
        self._suite, self._planned, self._level = suite, planned, level
        self._software, self._as_json = software, as_json
        self._width, self._colour = layout(sys.stdout)
        self._column = title_column(each.probe.title for each in planned)
        self._lines: list[ProbeLine] = []
        live = [each for each in planned if not each.why_not]
        fresh = all(each.probe.fresh for each in live)
        self._total = sum(each.about for each in live) + (0.0 if fresh else FRESH_START)  # seconds
        self._left = self._total
        self.interrupted = False

    def announce(self) -> None:
        """Describe the level before anything runs."""
        live = [each.probe for each in self._planned if not each.why_not]
        risky = [probe.title for probe in live if probe.risky]
        known = (
            f"These have reset the GPU on some machines: {', '.join(risky)}."
            if risky
            else "None of them is known to reset a GPU."
        )
        about = f"about {rough_duration(self._total)}"
        page = Page(self._width, colour=False)
        page.paragraph(f"Level {self._level}: {plural(len(live), 'probe')}, {about}. {known}")
        if self._as_json:
            tell(str(page).rstrip())
        else:
            show(str(page))

    def run(self) -> None:
        """Run all of it."""
        for number, planned in enumerate(self._planned):
            observation = self._observe(planned, number)
            self._left -= planned.about
            line = line_of(planned.probe, observation)
            self._lines.append(line)
            if self._as_json:
                print_json({"observation": observation, "one_in": line.one_in})
            else:
                show(
                    render_probe(line, column=self._column, width=self._width, colour=self._colour)
                )

    def conclude(self) -> int:
        """Show the summary, and return the exit code."""
        outcomes = [line.observation for line in self._lines]
        summary = ProbeSummary(
            level=self._level,
            software=self._software,
            ok=sum(each.outcome is ProbeOutcome.OK for each in outcomes),
            wrong=sum(each.bad for each in outcomes),
            not_run=sum(each.outcome is ProbeOutcome.NOT_RUN for each in outcomes),
            interrupted=self.interrupted,
            conclusion=tuple(conclusion(self._lines)),
        )
        if self._as_json:
            print_json({"summary": summary})
        else:
            self._show_summary(summary)
        if self.interrupted:
            return INTERRUPTED
        return SOMETHING_WRONG if summary.wrong else NOTHING_WRONG

    def _show_summary(self, summary: ProbeSummary) -> None:
        page = Page(self._width, colour=self._colour)
        if self.interrupted:
            page.paragraph("Interrupted; the current probe was stopped.")
        for sentence in summary.conclusion:
            page.paragraph(sentence)
        if summary.wrong:
            page.paragraph("Details: rocsteady probe --explain")
        show(str(page))

    def _observe(self, planned: Planned, number: int) -> Observation:
        """Run one probe, and show how far it is."""
        if planned.why_not:
            return self._suite.run(planned)
        tried = 0

        def count(tries: int) -> None:
            nonlocal tried
            tried = tries

        def now(elapsed: float) -> Progress:
            left = max(self._left - min(elapsed, planned.about), 0.0)
            done = 1 - left / self._total if self._total else 1.0
            tries = f"{tried:,} of {planned.tries:,} {planned.probe.what}" if tried else "starting"
            of_all = f"{number + 1} of {len(self._planned)}: {planned.probe.title}"
            return Progress(f"{of_all}, {tries}, about {rough_duration(left)} left", done)

        with progress(now):
            return self._suite.run(planned, progress=count)


def print_json(line: dict[str, object]) -> None:
    """Print one line for programs."""
    show_json({"version": 1, **line}, indent=0)
