"""Questions that users asked, each answered by one command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.knowledge.failures import load_failures

if TYPE_CHECKING:
    from tests.conftest import Recorded

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

QUESTIONS = tomllib.loads((Path(__file__).parent / "questions.toml").read_text("utf-8"))["question"]
OF_MACHINES = [question for question in QUESTIONS if "finding" in question]
OF_ERRORS = [question for question in QUESTIONS if "failure" in question]


def asked(question: dict[str, Any]) -> str:
    return str(question["ask"])


def test_there_are_enough_and_each_has_one_kind_of_answer() -> None:
    assert len(QUESTIONS) == len(OF_MACHINES) + len(OF_ERRORS) >= 50
    assert all(question["source"] for question in QUESTIONS)


@pytest.mark.parametrize("question", OF_MACHINES, ids=asked)
def test_the_doctor_answers(recorded: Recorded, question: dict[str, Any]) -> None:
    machine = Path(question["command"].rpartition(" ")[2]).stem

    findings = {finding.rule for finding in recorded.diagnosis(machine).findings}

    assert question["finding"] in findings


@pytest.mark.parametrize("question", OF_ERRORS, ids=asked)
def test_explain_answers(question: dict[str, Any]) -> None:
    kernel = question.get("what") == "kernel"
    symptoms = Symptoms(
        log="" if kernel else question["text"],
        kernel=(question["text"],) if kernel else (),
        exit_code=1,
        signal=None,
        hung=False,
    )

    assert Classifier(load_failures()).name(symptoms).kind == question["failure"]
