"""A bundle holds evidence that any viewer may show."""

from __future__ import annotations

import zipfile
from contextlib import closing
from io import BytesIO
from pathlib import Path

from rocsteady.model import Strategy
from rocsteady.report.facts import bundle
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place


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
