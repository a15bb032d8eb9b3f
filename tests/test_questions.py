"""Questions that users asked, each answered by one command."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocsteady.doctor.env.variable_files import assignments
from rocsteady.doctor.env.variables import judge
from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.knowledge.values import Backing
from rocsteady.doctor.wheels import torch_offers
from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms

if TYPE_CHECKING:
    from tests.conftest import Recorded

QUESTIONS = tomllib.loads((Path(__file__).parent / "questions.toml").read_text("utf-8"))["question"]
OF_MACHINES = [question for question in QUESTIONS if "finding" in question]
OF_ERRORS = [question for question in QUESTIONS if "failure" in question]
OF_VARIABLES = [question for question in QUESTIONS if "effect" in question]
OF_WHEELS = [question for question in QUESTIONS if " wheels " in question["command"]]


def asked(question: dict[str, Any]) -> str:
    return str(question["ask"])


def test_each_question_has_one_kind_of_answer() -> None:
    kinds = (OF_MACHINES, OF_ERRORS, OF_VARIABLES, OF_WHEELS)
    assert len(QUESTIONS) == sum(map(len, kinds))
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


@pytest.mark.parametrize("question", OF_VARIABLES, ids=asked)
def test_env_answers(recorded: Recorded, question: dict[str, Any]) -> None:
    machine = recorded.machine(Path(question["command"].rpartition(" ")[2]).stem)

    review = judge(
        assignments(question["script"], "run.sh"), machine, recorded.knowledge, file="run.sh"
    )

    (verdict,) = review.variables
    assert verdict.name == question["variable"]
    assert verdict.effect.value == question["effect"]
    assert question.get("rule", "") in ("", *(reason.rule for reason in verdict.reasons))


@pytest.mark.parametrize("question", OF_WHEELS, ids=asked)
def test_wheels_answers(recorded: Recorded, question: dict[str, Any]) -> None:
    words = question["command"].split()
    gfx, system, python = (words[words.index(it) + 1] for it in ("--gpu", "--os", "--python"))
    machine = recorded.machine("no-amd-gpu")

    found = torch_offers(machine, recorded.knowledge, gfxs=(gfx,), system=system, python=python)

    if "install" in question:
        assert question["install"] in found.offers[0].install
        assert found.offers[0].backing is not Backing.BUILT
    elif "broken" in question:
        rules = {problem.rule for offer in found.offers for problem in offer.problems}
        assert question["broken"] in rules
    else:
        assert question["untested"]
        assert all(offer.backing is Backing.BUILT for offer in found.offers)
