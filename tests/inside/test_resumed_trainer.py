"""--resume-trainer gives a trainer the checkpoint, once, and only if the script names none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rocsteady_train.inside import wire
from rocsteady_train.inside.heartbeat import page
from rocsteady_train.inside.resumed_trainer import give_checkpoint


class Transformers:
    def train(self, resume_from_checkpoint: object = None, **more: object) -> object:
        return resume_from_checkpoint, more


class Lightning:
    def fit(self, model: object, ckpt_path: object = None) -> object:
        return model, ckpt_path


@pytest.fixture
def checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setattr(page, "FOLDER", str(tmp_path))  # for the note on the call that is wrong
    monkeypatch.setenv(wire.RESUME_TRAINER, "/job/out/checkpoint-50")
    return "/job/out/checkpoint-50"


def given(trainer: type[Any]) -> Any:  # noqa: ANN401 - one of the two above
    """Return a trainer of a class that is hooked as if it had just been imported."""
    hooked = type("Trainer", (), dict(vars(trainer)))
    give_checkpoint(SimpleNamespace(Trainer=hooked), lambda _, ours: ours)
    return hooked()


def test_the_first_call_is_given_it(checkpoint: str) -> None:
    trainer = given(Transformers)

    assert trainer.train(trial=1) == (checkpoint, {"trial": 1})
    assert trainer.train() == (None, {})  # another training of the same script


def test_one_that_the_script_names_stays(checkpoint: str) -> None:
    trainer = given(Transformers)

    assert trainer.train("mine") == ("mine", {})
    assert trainer.train(resume_from_checkpoint=False) == (checkpoint, {})  # as None: it names none


def test_lightning_is_given_it_too(checkpoint: str) -> None:
    assert given(Lightning).fit("model") == ("model", checkpoint)
    assert given(Lightning).fit("model", ckpt_path="last") == ("model", "last")


def test_a_call_that_is_wrong_fails_as_without_us(checkpoint: str) -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        given(Lightning).fit()
    assert checkpoint
