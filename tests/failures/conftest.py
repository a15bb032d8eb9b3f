"""The classifier with what it really knows, made once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rocsteady.doctor.knowledge.failures import FailureKnowledge, load_failures
from rocsteady.failures.classify import Classifier

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that tests can share their builders


@pytest.fixture(scope="session")
def failure_knowledge() -> FailureKnowledge:
    return load_failures()


@pytest.fixture(scope="session")
def classifier(failure_knowledge: FailureKnowledge) -> Classifier:
    return Classifier(failure_knowledge)
