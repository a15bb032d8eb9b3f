"""The page about a run: what happened, why, what was done, what it cost, and the rest."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence

from rocsteady.journal.values import Incident
from rocsteady.page import plot
from rocsteady.page.markup import Markup, raw, tag
from rocsteady.page.page import MOST_ROWS, POLICY, pairs, resource, table, whole_page
from rocsteady.page.series import gauge, gauge_names, in_attempts, rates
from rocsteady.report.run_report import (
    BAD,
    WARNING,
    RunReport,
    attempt_end,
    costs_of,
    decision_after,
    decision_in_words,
    effect_of,
    ended_well,
    failure_of,
    incident_title,
    next_step,
    settings_of,
    state_of,
    summary,
)
from rocsteady.report.times import stamp
from rocsteady.vocabulary import Diagnosis, Severity
from rocsteady.wording import YEAR, duration, size

UNCONFIRMED = "rocsteady's authors have not confirmed any of this on AMD hardware."
LABELS = {Severity.BLOCKS: "blocks", Severity.RISKS: "risk", Severity.NOTES: "note"}
SEVERITIES = {Severity.BLOCKS: BAD, Severity.RISKS: WARNING, Severity.NOTES: "note"}
MOST_WAITS = 4  # sentences of a proof that are shown at once
ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")


def render_page(report: RunReport, *, live: bool = False) -> str:
    """Lay out the whole document; ``live`` adds the script that renews it from its server."""
    script = _script(live=live)
    title = f"{report.story.run.name}: {state_of(report)[0]} (rocsteady)"
    body = tag("body", render_main(report), tag("script", raw(script)))
    return whole_page(title, body, _policy(script, live=live))


def render_main(report: RunReport) -> Markup:
    """Lay out what changes while a run goes on."""
    sections = (
        _top(report),
        _section("Timeline", _timeline(report)),
        _section("Measured", _plots(report)),
        _section("Incidents", _incidents(report)),
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
        ("Deadline", stamp(report.story.deadline) if report.story.deadline else None),
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
        spans.append(plot.Span(attempt.started, end, kind, f"attempt {attempt.number}", title))
    if spans:
        yield plot.timeline(spans, axis, _marks(report))


def _plots(report: RunReport) -> Iterator[Markup]:
    axis, marks = _axis(report), _marks(report)
    buckets = in_attempts(report.story.progress, report.story.attempts)
    speeds = rates(buckets, report.story.deeds)
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


def _incidents(report: RunReport) -> Iterator[Markup]:
    with_incident = {incident.attempt for incident in report.story.incidents}
    for incident in report.story.incidents:
        yield _incident(report, incident)
    for row in report.story.failures:
        if row.attempt not in with_incident:
            yield tag(
                "article",
                tag("h3", f"Attempt {row.attempt} failed"),
                *_identified(report, row.attempt),
            )


def _incident(report: RunReport, incident: Incident) -> Markup:
    proof = next((each for each in report.proofs if each.incident == incident.number), None)
    return tag(
        "article",
        tag(
            "h3",
            f"Incident {incident.number}: {incident_title(incident)}",
            id=f"incident-{incident.number}",
        ),
        tag(
            "p",
            f"{stamp(incident.at)}, attempt {incident.attempt}."
            f" {incident.why[:1].upper()}{incident.why[1:]}.",
        ),
        tag("p", tag("strong", "Where: "), tag("code", incident.place)) if incident.place else None,
        tag("p", tag("strong", "Ranks: "), f"{incident.blame.why}.") if incident.blame else None,
        *_proof(proof.waits if proof else ()),
        *_identified(report, incident.attempt),
        _folded("Stacks", proof.stacks) if proof and proof.stacks else None,
        tag("p", f"Evidence: {incident.evidence}", class_="detail") if incident.evidence else None,
    )


def _proof(waits: Sequence[str]) -> Iterator[Markup]:
    """Show what the training waits for and the conclusion; the threads between are folded."""
    if not waits:
        return
    yield tag("p", tag("strong", "Proof"))
    between = waits[1:-1] if len(waits) > MOST_WAITS else ()
    shown = (waits[0], waits[-1]) if between else waits
    yield tag("ul", *(tag("li", sentence) for sentence in shown))
    if between:
        yield _folded(f"{len(between)} other threads that wait", "\n".join(between))


def _identified(report: RunReport, attempt: int) -> Iterator[Markup]:
    failure, decision = failure_of(report.story, attempt), decision_after(report.story, attempt)
    if failure is not None:
        yield tag(
            "p",
            tag("strong", "Identified as: "),
            f"{failure.title.rstrip('.')} (",
            tag("code", failure.kind),
            f", {failure.certainty.value}). {' '.join(failure.words.split())}",
        )
        if failure.line:
            yield tag("p", tag("strong", "Line: "), tag("code", failure.line))
        if failure.seen or failure.traceback:
            yield _folded("Evidence", "\n".join((*failure.seen, failure.traceback)).strip())
        if failure.sources:
            yield tag("p", "Sources: ", *_links(failure.sources), class_="detail")
    if decision is not None:
        yield tag(
            "p",
            tag("strong", "What was done: "),
            f"{decision_in_words(decision)} {decision.why.rstrip('.')}.",
        )
        yield tag("p", tag("strong", "Effect: "), effect_of(report, attempt))


def _links(sources: Sequence[str]) -> Iterator[Markup | str]:
    """Link each issue to its page; what is no issue stays text."""
    for number, source in enumerate(sources):
        yield ", " if number else ""
        if issue := ISSUE.fullmatch(source):
            address = f"https://github.com/{issue[1]}/issues/{issue[2]}"
            yield tag("a", source, href=address, rel="noreferrer")
        else:
            yield source


def _costs(report: RunReport) -> Iterator[Markup]:
    costs = costs_of(report.story, report.at)
    if costs.whole <= 0:
        return
    shares = [
        ("training", costs.useful),
        ("until the first step", costs.starting),
        ("detecting failures and restarting", costs.idle),
        ("repeating steps", costs.redone),
        *([("paused by the user", costs.paused)] if costs.paused else []),
    ]
    yield tag("p", "All of the time from the start of the run to its end.", class_="detail")
    yield plot.share_bar(shares)
    yield table(
        "Costs",
        ("part", "time", "share"),
        [
            (name, duration(seconds), f"{100 * seconds / costs.whole:.1f} %")
            for name, seconds in shares
        ],
    )


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
                decision.what if decision else "",
            )
        )  # fmt: skip
    if rows:
        yield table(
            "Attempts",
            ("attempt", "started", "settings", "duration", "end", "failure", "next"),
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
        fix = finding.fix.commands[0] if finding.fix.commands else ""
        yield tag("p", "Fix: ", tag("code", fix) if fix else finding.fix.text, class_="detail")
    if not diagnosis.findings:
        yield tag("p", "The doctor found no problems when the run began.")


def _environment(report: RunReport) -> Iterator[Markup]:
    if report.variables:
        yield table("Variables", ("variable", "value"), sorted(report.variables.items()))


def _messages(report: RunReport) -> Iterator[Markup]:
    lines = [f"{stamp(message.at)}  {message.text}" for message in report.story.messages]
    if lines:
        yield _folded(f"{len(lines)} messages", "\n".join(lines[-MOST_ROWS:]))
    if report.log_tail:
        yield _folded("End of the log", report.log_tail)


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


def _folded(title: str, content: str) -> Markup:
    return tag("details", tag("summary", title), tag("pre", content, tabindex="0"))


def live_policy() -> str:
    """Return the content policy of a live page, for its server to send as well."""
    return _policy(_script(live=True), live=True)


def _script(*, live: bool) -> str:
    return resource("page.js") + (resource("live.js") if live else "")


def _policy(script: str, *, live: bool) -> str:
    """Allow this very script, and nothing else; a live page may ask its own server."""
    import base64  # noqa: PLC0415 - only a page needs them
    import hashlib  # noqa: PLC0415

    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    asks = "; connect-src 'self'" if live else ""
    return POLICY.format(f"'sha256-{digest}'") + asks
