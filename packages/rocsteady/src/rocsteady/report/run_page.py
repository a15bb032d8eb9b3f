"""The page about a run: what happened, why, what was done, what it cost, and the rest."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.values import Diagnosis
from rocsteady.report import plot
from rocsteady.report.incidents import incidents
from rocsteady.report.markup import Markup, raw, tag
from rocsteady.report.page_elements import (
    MOST_ROWS,
    POLICY,
    folded,
    pairs,
    resource,
    table,
    whole_page,
)
from rocsteady.report.run_report import (
    BAD,
    UNCHANGED,
    WARNING,
    RunReport,
    attempt_end,
    costs_of,
    decision_after,
    decision_in_words,
    ended_well,
    failure_of,
    incident_title,
    next_step,
    settings_of,
    state_of,
    summary,
)
from rocsteady.report.series import gauge, gauge_names, in_attempts, rates
from rocsteady.screens.deadline import result, spare
from rocsteady.screens.times import stamp
from rocsteady.wording import YEAR, duration, plural, size

UNCONFIRMED = "rocsteady's authors have not confirmed any of this on AMD hardware."
LABELS = {Severity.BLOCKS: "blocks", Severity.RISKS: "risk", Severity.NOTES: "note"}
SEVERITIES = {Severity.BLOCKS: BAD, Severity.RISKS: WARNING, Severity.NOTES: "note"}


def render_page(report: RunReport, *, reload_after: int | None = None) -> str:
    """Lay out the whole document; a browser loads it again after that many seconds."""
    script = resource("page.js")
    title = f"{report.story.run.name}: {state_of(report)[0]} (rocsteady)"
    body = tag("body", _main(report), tag("script", raw(script)))
    return whole_page(title, body, _policy(script), reload_after=reload_after)


def _main(report: RunReport) -> Markup:
    sections = (
        _top(report),
        _section("Timeline", _timeline(report)),
        _section("Measured", _plots(report)),
        _section("Incidents", incidents(report)),
        _section("Where the time went", _costs(report)),
        _section("Attempts", _attempts(report)),
        _section("Machine", _machine(report.diagnosis)),
        _section("Environment", _environment(report)),
        _section("Messages", _messages(report)),
        _section("Not known", _unknown(report)),
    )
    return tag("main", *(section for section in sections if section), id="report")


def _section(title: str, content: Iterator[Markup]) -> Markup | None:
    parts = list(content)
    identity = title.lower().replace(" ", "-")
    return tag("section", tag("h2", title, id=identity), *parts) if parts else None


def _top(report: RunReport) -> Markup:
    run, (state, good) = report.story.run, state_of(report)
    what, typed = next_step(report)
    facts = [
        ("Command", tag("code", shlex.join(run.command))),
        ("Started", stamp(run.started)),
        ("Ended", stamp(run.ended) if run.ended else None),
        ("GPU", _gpus(report.diagnosis)),
        ("Deadline", _deadline(report)),
        ("Expected end", _forecast(report)),
        ("Report made", stamp(report.at)),
    ]
    return tag(
        "header",
        tag("h1", run.name, " ", tag("span", state, class_=f"badge {good}")),
        tag("p", summary(report), class_="summary"),
        tag("p", tag("strong", "Next: "), what, *((" ", tag("code", typed)) if typed else ())),
        pairs(facts),
    )


def _gpus(diagnosis: Diagnosis | None) -> str | None:
    if diagnosis is None:
        return None
    found = "; ".join((*diagnosis.machine.gpus, *diagnosis.machine.other_gpus))
    return found or "none: no AMD GPU was found on this machine"


def _deadline(report: RunReport) -> str | None:
    story = report.story
    if story.deadline is None:
        return None
    run, due = story.run, stamp(story.deadline)
    if run.ended is not None:
        return f"{due} ({result(run.ended, run.outcome, story.deadline)})"
    return f"{due} ({spare(story.forecast.at, story.deadline)})" if story.forecast else due


def _forecast(report: RunReport) -> str | None:
    ahead = report.story.forecast
    if ahead is None:
        return None
    return f"{stamp(ahead.at)} ({stamp(ahead.early)} to {stamp(ahead.late)} with 90 %)"


def _timeline(report: RunReport) -> Iterator[Markup]:
    story, axis = report.story, _axis(report)
    spans = []
    for attempt in story.attempts:
        end = attempt.ended or story.run.ended or report.at
        going_on = attempt.ended is None and report.is_running
        kind = "good" if going_on or ended_well(attempt) else "failed"
        told = attempt_end(attempt, story, running=report.is_running)
        title = f"attempt {attempt.number} ({settings_of(attempt)}) {told}"
        changed = settings_of(attempt)
        label = f"attempt {attempt.number}{f': {changed}' * (changed != UNCHANGED)}"
        spans.append(plot.Span(attempt.started, end, kind, label, title))
    if spans:
        yield plot.timeline(spans, axis, _marks(report))


def _plots(report: RunReport) -> Iterator[Markup]:
    axis, marks = _axis(report), _marks(report)
    buckets = in_attempts(report.story.progress, report.story.attempts)
    speeds = rates(buckets, report.story.intents)
    if any(speeds):
        yield plot.line_plot("Steps per second", speeds, axis, marks, lambda rate: f"{rate:.3g}")
    of_gpus: dict[str, list[Markup]] = {}
    for name in gauge_names(buckets):
        title, shown, from_zero = _quantity(name)
        series = gauge(buckets, name)
        if not any(series):  # nothing but NaN
            continue
        drawn = plot.line_plot(title, series, axis, marks, shown, from_zero=from_zero)
        if name.startswith("GPU "):
            of_gpus.setdefault(name.rpartition(" ")[0], []).append(drawn)
        else:
            yield drawn
    for number, (gpu, plots) in enumerate(of_gpus.items()):
        yield tag("details", tag("summary", gpu), *plots, open=number == 0)
    spent: dict[str, float] = {}
    for bucket in buckets:
        for phase, seconds in bucket.seconds_in.items():
            if 0 <= seconds < YEAR:  # nor is it NaN, as in a damaged journal
                spent[phase] = spent.get(phase, 0.0) + seconds
    if sum(spent.values()) > 0:
        yield tag("h3", "Time by phase")
        yield tag("p", "What the training process was doing, in all attempts.", class_="detail")
        yield plot.share_bar(sorted(spent.items(), key=lambda pair: -pair[1]))


def _quantity(name: str) -> tuple[str, Callable[[float], str], bool]:
    """Return the title of a gauge, how its values read, and whether its scale begins at zero."""
    title = f"{name[:1].upper()}{name[1:]}"
    if name.endswith("memory"):
        return title, size, True
    unit = {"busy": " %", "power": " W", "temperature": " °C"}.get(name.rpartition(" ")[2])
    if unit:
        return title, lambda value: f"{value:.0f}{unit}", True
    if name.endswith("clock"):
        return title, lambda value: f"{value / 1e6:,.0f} MHz", True
    return title, lambda value: f"{value:.4g}", False


def _costs(report: RunReport) -> Iterator[Markup]:
    costs = costs_of(report.story, report.at)
    if costs.whole <= 0:
        return
    shares = [
        ("training", costs.useful),
        ("until the first step", costs.starting),
        ("detecting failures and restarting", costs.idle),
        ("repeating steps", costs.redone),
        ("paused by the user", costs.paused),
    ]
    goodput = f"Goodput, the share spent training: {100 * costs.useful / costs.whole:.0f} %."
    yield tag("p", f"All of the time since the run started. {goodput}")
    yield plot.share_bar([(name, seconds) for name, seconds in shares if seconds > 0])


def _attempts(report: RunReport) -> Iterator[Markup]:
    rows = []
    for attempt in report.story.attempts:
        failure = failure_of(report.story, attempt.number)
        decision = decision_after(report.story, attempt.number)
        took = "" if attempt.ended is None else duration(attempt.ended - attempt.started)
        rows.append(
            (
                str(attempt.number), stamp(attempt.started), settings_of(attempt), took,
                attempt_end(attempt, report.story, running=report.is_running),
                failure.kind if failure else "",
                "" if decision is None or ended_well(attempt) else decision_in_words(decision)[:-1],
            )
        )  # fmt: skip
    if rows:
        yield table(
            "Attempts",
            ("attempt", "started", "settings", "duration", "end", "failure", "then"),
            rows,
        )


def _machine(diagnosis: Diagnosis | None) -> Iterator[Markup]:
    if diagnosis is None:
        return
    machine = diagnosis.machine
    yield pairs(
        [
            ("GPU", "; ".join((*machine.gpus, *machine.other_gpus)) or "no AMD GPU"),
            ("System", machine.system),
            ("PyTorch", machine.torch or "not found"),
            ("GPU code in PyTorch", machine.torch_code),
            ("Python", machine.python),
        ]
    )
    for finding in diagnosis.findings:
        badge = tag(
            "span", LABELS[finding.severity], class_=f"badge {SEVERITIES[finding.severity]}"
        )
        yield tag("p", badge, " ", tag("code", finding.rule), " ", finding.summary)
        typed = tag("code", finding.fix.commands[0]) if finding.fix.commands else ""
        yield tag("p", f"Fix: {finding.fix.text} ", typed, class_="detail")
    if not diagnosis.findings:
        yield tag("p", "The doctor found no problems when the run began.")


def _environment(report: RunReport) -> Iterator[Markup]:
    if report.variables:
        yield table("Variables", ("variable", "value"), sorted(report.variables.items()))


def _messages(report: RunReport) -> Iterator[Markup]:
    lines = [f"{stamp(message.at)}  {message.text}" for message in report.story.messages]
    if lines:
        yield folded(plural(len(lines), "message"), "\n".join(lines[-MOST_ROWS:]))
    if report.log_tail:
        yield folded("End of the log", report.log_tail)


def _unknown(report: RunReport) -> Iterator[Markup]:
    yield tag("p", UNCONFIRMED)
    missing = []
    if report.diagnosis is None:
        missing.append("The machine was not examined when this run began.")
    else:
        missing += [f"Not checked: {each.what}: {each.why}" for each in report.diagnosis.unchecked]
    names = gauge_names(report.story.progress)
    if "loss" not in names:
        missing.append("No loss: the script printed none in a format that rocsteady recognizes.")
    if not any(name.startswith("GPU") for name in names):
        missing.append("No GPU measurements: no AMD GPU responded during the run.")
    yield tag("ul", *(tag("li", each) for each in missing))


def _axis(report: RunReport) -> plot.TimeAxis:
    run = report.story.run
    return plot.TimeAxis(run.started, run.ended or report.at)


def _marks(report: RunReport) -> list[plot.IncidentMark]:
    return [
        plot.IncidentMark(
            each.at, str(each.number), f"incident {each.number}: {incident_title(each)}"
        )
        for each in report.story.incidents
    ]


def _policy(script: str) -> str:
    """Allow this very script, and nothing else."""
    import base64  # noqa: PLC0415 - only a page needs them
    import hashlib  # noqa: PLC0415

    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return POLICY.format(f"'sha256-{digest}'")
