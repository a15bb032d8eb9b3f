"""Whoever labels, stamps, quotes or colours the lines of a log, its failure stays the same."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms

TUNING = Path(__file__).parents[1] / "logs" / "tuning"
LEAST = 0.97  # of the texts


def each(line: Callable[[int, str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(line(at, it) for at, it in enumerate(text.split("\n")))


FORMATS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "torchrun's label": each(lambda _, it: f"[rank3]: {it}"),
    "srun's label": each(lambda _, it: f"3: {it}"),
    "mpirun's label": each(lambda _, it: f"[1,3]<stderr>:{it}"),
    "Ray's label": each(lambda _, it: f"(RayTrainWorker pid=4711, ip=10.0.0.3) {it}"),
    "a container's name": each(lambda _, it: f"trainer_1  | {it}"),
    "times": each(lambda at, it: f"2025-11-14T10:00:{at % 60:02}.123Z {it}"),
    "times and levels": each(lambda at, it: f"[2025-11-14 10:00:{at % 60:02},123] [ERROR] {it}"),
    "quoted": each(lambda _, it: f"> {it}"),
    "coloured": each(lambda _, it: f"\x1b[31m{it}\x1b[0m"),
    "indented": each(lambda _, it: f"    {it}"),
    "of Windows": lambda text: text.replace("\n", "\r\n"),
    "after much progress": lambda text: "step 1 loss 0.5 2.4it/s\n" * 50 + text,
    "before a summary": lambda text: f"{text}\nwandb: Run summary:\nwandb: train/loss 0.3\n",
    "twice": lambda text: f"{text}\n{text}",
}


@cache
def texts() -> tuple[tuple[str, Symptoms], ...]:
    spec = importlib.util.spec_from_file_location("score", TUNING.parent / "score.py")
    assert spec is not None
    assert spec.loader is not None
    score = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(score)
    return tuple(
        (text.label, text.symptoms)
        for text in score.texts("tuning")
        if text.symptoms.log and not text.symptoms.hung
    )


def named(classifier: Classifier, write: Callable[[str], str]) -> Iterator[bool]:
    for label, symptoms in texts():
        written = msgspec.structs.replace(symptoms, log=write(symptoms.log))
        yield classifier.name(written).kind == label


@pytest.mark.parametrize("form", FORMATS)
def test_the_form_of_a_line_does_not_matter(classifier: Classifier, form: str) -> None:
    right = list(named(classifier, FORMATS[form]))

    assert sum(right) >= LEAST * len(right)
