"""The page of a run: one file, no script but our own, and all of it there without one."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from contextlib import closing
from datetime import timedelta, timezone
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

from msgspec.structs import replace
from sample_run import AT, crashed, facts, hang, record, story

from rocsteady.doctor.knowledge.values import Fix
from rocsteady.hangs.proof.wait_set import Waiter
from rocsteady.model import Forecast, Strategy
from rocsteady.report.pages import render_page
from rocsteady.report.read_run import bundle
from rocsteady.report.source_lines import SourceExcerpt, SourceLine
from rocsteady.report.story import (
    ATTEMPT_COLUMNS,
    TRIED_COLUMNS,
    IncidentEvidence,
    RunFacts,
    build_story,
)
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.values import Gauge

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e&\"'"


class Elements(HTMLParser):
    """Collects the elements, and fails if one is closed that is not open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text += data

    def attributes(self, name: str, value: str) -> list[dict[str, str | None]]:
        """Return the attributes of the elements that have this one."""
        return [each for _, each in self.seen if each.get(name) == value]


def test_the_page_is_well_formed_and_asks_no_other_host() -> None:
    page = render_page(build_story(facts()))

    elements = Elements(page)
    assert sum(name == "script" for name, _ in elements.seen) == 1
    for name, attributes in elements.seen:
        assert not {"src", "href", "onclick", "onload", "action"} & attributes.keys(), name
    assert "http" not in page.replace("http-equiv", "")


def test_only_our_own_script_may_run() -> None:
    page = render_page(story())
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(each["content"] for _, each in Elements(page).seen if "http-equiv" in each) or ""
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert {part.split()[0] for part in policy.split(";") if part.strip()} == {
        "default-src",
        "style-src",
        "script-src",
        "base-uri",
        "form-action",
    }


def test_what_others_wrote_is_text() -> None:
    odd = replace(
        facts(text=HOSTILE, deadline=AT),
        advice={"hang-in-script": Fix(text=HOSTILE, commands=(HOSTILE,))},
        crash=HOSTILE,
    )
    measured = Gauge(least=0.1, most=0.9, mean=0.5, count=3)
    progress = tuple(
        replace(each, gauges={HOSTILE: measured, f"GPU 0 {HOSTILE}": measured},
                seconds_in={HOSTILE: 4.0})
        for each in odd.record.progress
    )  # fmt: skip
    page = render_page(build_story(replace(odd, record=replace(odd.record, progress=progress))))

    elements = Elements(page)
    assert sum(name == "script" for name, _ in elements.seen) == 1
    for _, attributes in elements.seen:
        assert not any(name.startswith("on") for name in attributes)
    assert elements.text.count("alert(1)") > 10
    assert [mark for mark in page if not mark.isprintable() and mark not in "\n\t"] == []


def test_repeated_hangs_of_others_names_are_text() -> None:
    twice = (hang(1, attempt=1, text=HOSTILE), hang(2, attempt=1, text=HOSTILE))
    page = render_page(build_story(facts(text=HOSTILE, incidents=twice)))

    elements = Elements(page)
    assert sum(name == "script" for name, _ in elements.seen) == 1
    assert {each.get("id") for _, each in elements.seen} > {"hang-1", "hang-2"}


def test_the_page_has_every_part_of_the_story() -> None:
    fix = Fix(text="Give the container more.", commands=("df -h /dev/shm",))
    told = build_story(replace(facts(deadline=AT), advice={"hang-in-script": fix}))
    trouble = told.incidents[0]
    elements = Elements(render_page(told))

    for part in (
        told.state.value, told.happened, told.next_step.text, told.command, told.met,
        trouble.action, trouble.effect, trouble.stacks, trouble.evidence, fix.text, *fix.commands,
        *(each for one in told.attempts for each in one.cells if isinstance(each, str)),
        told.log_tail, *told.unknown, *told.variables, *told.variables.values(),
        *(share for share, _ in told.costs.shares), *(phase for phase, _ in told.phases),
        *(plot.title for plot in told.plots), "peer-died", "rank 1 is waiting for a lock",
    ):  # fmt: skip
        assert part in elements.text, part
    headings = {each.get("id") for name, each in elements.seen if name == "h2"}
    assert headings == {
        "what-to-do", "timeline", "what-went-wrong", "measured", "details",
    }  # fmt: skip


def test_a_crash_of_the_machine_is_explained() -> None:
    told = build_story(RunFacts(at=AT, record=crashed(1), crash="Power or heat."))

    assert "Power or heat." in Elements(render_page(told)).text


def test_plots_show_the_range_and_the_incidents() -> None:
    page = render_page(story())

    assert "Loss: 0.1 to 0.9, last 0.5" in page
    assert "Steps per second: 1.67<" in page
    assert len(Elements(page).attributes("class", "mark")) == 3  # on the timeline and on each plot


def test_a_link_leads_to_the_issue_and_nowhere_else() -> None:
    elements = Elements(render_page(build_story(facts(text="ROCm/TheRock#12"))))

    links = {each["href"] for _, each in elements.seen if "href" in each}
    assert links == {"https://github.com/ROCm/TheRock/issues/12"}
    odd = Elements(render_page(build_story(facts(text='javascript:x"#12'))))
    assert not any("href" in each for _, each in odd.seen)


def test_numbers_that_no_plot_can_show_are_nowhere() -> None:
    nan = float("nan")
    odd = Gauge(least=nan, most=nan, mean=nan, count=1)
    whole = record().progress
    progress = (replace(whole[0], gauges={"loss": odd}, seconds_in={"data": nan}), *whole[1:])

    page = render_page(build_story(facts(progress=progress)))

    assert re.search(r"\b0\.5\b", page)
    assert not re.search(r"\bnan\b", page)


def test_a_long_proof_folds_what_is_between() -> None:
    waits = ("the training thread waits for a pipe", *(f"thread {n} waits" for n in range(6)), "so")
    told = build_story(replace(facts(), evidence=(IncidentEvidence(incident=1, waits=waits),)))

    page = render_page(told)

    shown, _, folded = page.partition("<summary>6 other threads")
    assert "The training thread waits for a pipe" in shown
    assert "thread 5 waits" not in shown
    assert "thread 5 waits" in folded


def test_the_wait_is_drawn_beside_the_lines_of_the_script() -> None:
    main = Waiter(pid=1, tid=1, place="train.py:61 main", waits_for="pipe 7", ended_by=((2, 2),))
    worker = Waiter(pid=2, tid=2, place="train.py:31 waiting for a lock", waits_for="lock 0x1")
    lines = (SourceLine(number=31, text=HOSTILE, blamed=True),)
    found = IncidentEvidence(
        incident=1,
        waiters=(main, worker),
        source=SourceExcerpt(file="train.py", lines=lines, changed=False),
    )
    elements = Elements(render_page(build_story(replace(facts(), evidence=(found,)))))

    boxes = [each for _, each in elements.seen if (each.get("class") or "").startswith("box")]
    assert [each["class"] for each in boxes] == ["box", "box blamed", "box end"]
    assert len(elements.attributes("class", "line blamed")) == 1
    assert sum(name == "script" for name, _ in elements.seen) == 1


def test_times_are_local_and_have_utc_for_who_points_at_them() -> None:
    east = timezone(timedelta(hours=2))
    times = [
        each for name, each in Elements(render_page(story(), zone=east)).seen if name == "time"
    ]

    assert times
    assert all((each["datetime"] or "").endswith("+02:00") for each in times)
    assert all((each["title"] or "").endswith(" UTC") for each in times)


def test_the_deadline_is_a_local_time_too() -> None:
    east = timezone(timedelta(hours=2))
    ahead = Forecast(at=7200.0, early=3600.0, late=10800.0, rate=1.0, left=9, failures=0.0)
    told = build_story(facts(deadline=9000.0, forecast=ahead))
    seen = Elements(render_page(told, zone=east)).seen

    times = {each["datetime"] for name, each in seen if name == "time"}
    assert times > {
        "1970-01-01T04:30:00+02:00",  # due
        "1970-01-01T04:00:00+02:00",  # expected, and its range
        "1970-01-01T03:00:00+02:00",
        "1970-01-01T05:00:00+02:00",
    }


def test_every_cell_of_a_wide_table_says_its_column_where_it_is_stacked() -> None:
    elements = Elements(render_page(story()))

    assert [each["class"] for each in elements.attributes("aria-label", "Tries")] == [
        "scroll stack"
    ]
    cells = [each.get("data-head") for name, each in elements.seen if name == "td"]
    assert tuple(cells[:5]) == TRIED_COLUMNS
    assert tuple(cells[5:13]) == ATTEMPT_COLUMNS


def test_what_is_written_on_a_plot_is_not_stretched_with_it() -> None:
    page = render_page(story())

    assert 'preserveAspectRatio="none"' in page
    assert '<span style="left:40.0%" class="x">4 min</span>' in page
    assert '<span style="top:50.0%" class="y">0.5</span>' in page
    assert '<span style="left:48.33%" class="number">1</span>' in page


def test_evidence_has_no_raw_escapes(tmp_path: Path) -> None:
    with closing(Journal(find_place(tmp_path / "project", state=tmp_path / "state"))) as journal:
        run = journal.begin_run(("true",), job={}, strategy=Strategy(), name="calm-otter")
        incident = Path(run.folder) / "incident-1"
        incident.mkdir()
        tail = "step 3 \x1b[31mred\x1b]0;title\x07 \u202e\x9b2J\n\ttoken=hunter2-very-secret\n"
        (incident / "log-tail.txt").write_text(tail, encoding="utf-8")

        content = bundle(journal, journal.runs()[0], "<p>page</p>")

    with zipfile.ZipFile(BytesIO(content)) as archive:
        shown = archive.read("incident-1/log-tail.txt").decode()
    assert "hunter2" not in shown
    assert "step 3" in shown
    assert not any(ord(mark) < 32 or 127 <= ord(mark) < 160 for mark in shown if mark not in "\n\t")
    assert "\u202e" not in shown
