"""How many of the held-out public reports are named, and how many of those rightly."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.model import FailureKind

REPORTS = tomllib.loads((Path(__file__).parent / "reports.toml").read_text("utf-8"))["report"]


def symptoms(report: dict[str, Any]) -> Symptoms:
    kernel = report.get("what") == "kernel"
    return Symptoms(
        log="" if kernel else report["text"],
        kernel=tuple(report["text"].splitlines()) if kernel else (),
        exit_code=report.get("exit"),
        signal=report.get("signal"),
        hung=False,
    )


def measured(classifier: Classifier) -> tuple[float, float]:
    """Return precision and the share that was named; single reports are not to be looked at."""
    named = [(it["failure"], classifier.name(symptoms(it)).kind) for it in REPORTS]
    known = [(is_, called) for is_, called in named if called != FailureKind.UNKNOWN]
    right = sum(is_ == called for is_, called in known)
    return right / len(known), len(known) / len(REPORTS)


def test_there_are_sixty_reports_each_from_another_thread() -> None:
    assert len({report["source"] for report in REPORTS}) == len(REPORTS) >= 60


def test_reports_are_named_right(classifier: Classifier) -> None:
    precision, share = measured(classifier)

    assert precision == pytest.approx(1, abs=0.07), f"precision {precision:.3f}"
    assert share >= 0.8, f"share named {share:.3f}"
