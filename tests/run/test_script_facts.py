"""What a script and its command say of the work, told apart by how sure it is."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from rocsteady.run.checkpoints.script_facts import (
    Amount,
    ScriptFacts,
    amounts,
    read_facts,
    resume_option,
    script_in,
    scripts_here,
)

PARSER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-e", "--num-epochs", type=int, default=12)
parser.add_argument("--lr", type=float, default=0.1)
"""


def facts(tmp_path: Path, text: str) -> ScriptFacts:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(text))
    return read_facts(path)


@pytest.mark.parametrize(
    "words",
    [
        ("--num-epochs", "30"),
        ("--num-epochs=30",),
        ("-e", "30"),
        ("train.epochs=30",),
        ("+trainer.max_epochs=30",),
        ("--num_train_epochs", "30", "--epochs", "many"),
    ],
)
def test_the_command_is_sure(tmp_path: Path, words: tuple[str, ...]) -> None:
    said = next(amounts("epoch", ("python", "train.py", *words), facts(tmp_path, PARSER), tmp_path))

    assert (said.count, said.sure) == (30, True)
    assert said.source.endswith(" in the command")


@pytest.mark.parametrize(
    ("text", "count", "said"),
    [
        (PARSER, 12, "the default of --num-epochs in train.py, line 4"),
        ("EPOCHS = 5\nfit(epochs=EPOCHS)", 5, "epochs in train.py, line 2"),
        ("class Config:\n    epochs: int = 7", 7, "epochs in train.py, line 2"),
        ("Trainer(max_epochs=9)", 9, "max_epochs in train.py, line 1"),
    ],
)
def test_the_script_is_a_guess(tmp_path: Path, text: str, count: int, said: str) -> None:
    found = list(amounts("epoch", ("python", "train.py"), facts(tmp_path, text), tmp_path))

    assert found == [Amount(count=count, source=said, sure=False)]


@pytest.mark.parametrize(
    "text",
    ["fit(epochs=3)\nfit(epochs=5)", "Trainer(max_epochs=-1)", "epochs = n", "not python", "\0"],
)
def test_what_is_not_plain_is_no_answer(tmp_path: Path, text: str) -> None:
    assert list(amounts("epoch", ("python", "x.py"), facts(tmp_path, text), tmp_path)) == []


def test_a_plain_line_of_a_config_is_a_guess(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("train:\n  epochs: 5  # all\n  steps: [1]\n")
    (tmp_path / "mine.yml").write_text("epochs: 6\nother: {epochs: 7}\n")
    nothing = ScriptFacts(name="")

    found = next(amounts("epoch", ("python", "x.py"), nothing, tmp_path))
    named = next(amounts("epoch", ("python", "x.py", "--config=mine.yml"), nothing, tmp_path))

    assert found == Amount(count=5, source="epochs in conf/config.yaml", sure=False)
    assert named == Amount(count=6, source="epochs in mine.yml", sure=False)
    assert list(amounts("step", ("python", "x.py"), nothing, tmp_path)) == []


@pytest.mark.parametrize(
    ("declared", "flag"),
    [
        ('add_argument("--resume", default=None)', "--resume"),
        ('add_argument("-r", "--resume-from", type=str)', "--resume-from"),
        ('add_argument("--resume", action="store_true")', "--resume"),
        ('add_argument("--checkpoint", default="")', "--checkpoint"),
        ('add_argument("--checkpoint", default="model.pt")', None),  # what it writes
        ('add_argument("--resume", type=int)', None),
        ('add_argument("resume")', None),
        ('add_argument("--checkpoint-every")', None),
    ],
)
def test_the_option_to_resume(tmp_path: Path, declared: str, flag: str | None) -> None:
    found = resume_option(facts(tmp_path, f"parser.{declared}"))

    assert (found.flags[-1] if found else None) == flag
    assert found is None or found.alone == ("store_true" in declared)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("trainer.train(resume_from_checkpoint=last)", 1),
        ("\ntrainer.fit(model, ckpt_path='last')", 2),
        ("trainer.train(resume_from_checkpoint=False)", 0),
        ("trainer.fit(model, ckpt_path=None)", 0),
    ],
)
def test_a_trainer_that_goes_on_by_itself(tmp_path: Path, text: str, line: int) -> None:
    assert facts(tmp_path, text).goes_on == line


def test_the_script_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    for name in ("train.py", "pack/go.py"):
        (tmp_path / name).write_text("")

    launched = ("torchrun", "--nproc-per-node", "2", "train.py", "--x", "1")
    assert script_in(launched, tmp_path) == tmp_path / "train.py"
    assert script_in(("python", "-m", "pack.go"), tmp_path) == tmp_path / "pack" / "go.py"
    assert script_in(("python", "-c", "pass"), tmp_path) is None


def test_the_one_script_with_a_main_is_found(tmp_path: Path) -> None:
    main = "if __name__ == '__main__':\n    main()\n"
    (tmp_path / "train_model.py").write_text(main)
    (tmp_path / "train_utils.py").write_text("def helps(): ...\n")
    (tmp_path / "other.py").write_text(main)

    assert scripts_here(tmp_path) == ("train_model.py",)
    (tmp_path / "main.py").write_text(main)
    assert scripts_here(tmp_path) == ("train_model.py", "main.py")


def test_one_without_a_main_is_found_if_it_is_the_only_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")

    assert scripts_here(tmp_path) == ("train.py",)
