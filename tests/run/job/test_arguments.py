"""Other arguments for a command: what is there is replaced, what is not clear is refused."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.run.job.stages import with_arguments


@pytest.mark.parametrize(
    ("command", "arguments", "changed"),
    [
        ("python t.py --dim 256 --lr 1", "--dim 128", "python t.py --dim 128 --lr 1"),
        ("python t.py --dim=256 --lr 1", "--dim 128", "python t.py --dim 128 --lr 1"),
        ("python t.py --dim 256 --lr 1", "--dim=128", "python t.py --dim=128 --lr 1"),
        ("python t.py --lr 1", "--dim 128", "python t.py --lr 1 --dim 128"),
        ("python t.py --dim-out 5", "--dim 128", "python t.py --dim-out 5 --dim 128"),
        ("python t.py --dim 1 --dim 2", "--dim 3", "python t.py --dim 1 --dim 3"),
        ("python t.py --lr -1e-4 --x", "--lr -.5", "python t.py --lr -.5 --x"),
        ("python t.py --dims 6 6 --x", "--dims 3 3 3", "python t.py --dims 3 3 3 --x"),
        ("torchrun --standalone --gpus 1 t.py", "--gpus 8", "torchrun --standalone --gpus 8 t.py"),
        ("python t.py --amp data.txt", "--amp", "python t.py --amp data.txt"),
        ("python t.py --x", "--x 5", "python t.py --x 5"),
        ("python t.py --x 5", "--a 1 --b --x 6", "python t.py --x 6 --a 1 --b"),
        ("python t.py model.dim=256 lr=1", "model.dim=128", "python t.py model.dim=128 lr=1"),
        ("python t.py --set a=1", "--set a=2 b=3", "python t.py --set a=2 b=3"),
        ("python t.py", "train", "python t.py train"),
        ("python t.py --x 1", "", "python t.py --x 1"),
    ],
)  # fmt: skip
def test_an_argument_takes_the_place_of_the_one_that_is_there(
    command: str, arguments: str, changed: str
) -> None:
    assert shlex.join(with_arguments(command.split(), arguments.split())) == changed


@pytest.mark.parametrize(
    ("command", "without", "changed"),
    [
        ("python t.py --val --lr 1", "--val", "python t.py --lr 1"),
        ("python t.py --val=x --lr 1", "--val", "python t.py --lr 1"),
        ("python t.py --val x --lr 1", "--val x", "python t.py --lr 1"),
        ("python t.py a=1 --val x", "--val x a=1", "python t.py"),
    ],
)
def test_words_are_taken_out_as_they_stand(command: str, without: str, changed: str) -> None:
    assert shlex.join(with_arguments(command.split(), (), without.split())) == changed


@pytest.mark.parametrize(
    ("arguments", "without", "sentence"),
    [
        ("--layers 32", "", "--layers is followed by 2 words in the command and 1 here, so its"),
        ("--layers=32", "", "--layers is followed by 2 words in the command and 1 here, so its"),
        ("", "--val", "the command has no --val"),
        ("", "--layers 3", "the command has no --layers 3"),
    ],
)
def test_what_is_not_clear_is_refused(arguments: str, without: str, sentence: str) -> None:
    command = ["python", "t.py", "--layers", "64", "64", "--x"]
    with pytest.raises(ValueError, match=r".") as raised:
        with_arguments(command, arguments.split(), without.split())
    assert str(raised.value).startswith(sentence)


values = st.lists(st.sampled_from(["7", "-3", "a"]), max_size=2)
options = st.dictionaries(st.sampled_from(["--x", "--y", "-z"]), values)


@given(options, options)
def test_every_option_is_there_once_with_its_new_values(
    before: dict[str, list[str]], after: dict[str, list[str]]
) -> None:
    def spelt(given: dict[str, list[str]]) -> list[str]:
        return [word for key, rest in given.items() for word in (key, *rest)]

    enough = {key: rest for key, rest in before.items() if len(rest) <= len(after.get(key, rest))}
    changed = with_arguments(["python", "t.py", *spelt(enough)], spelt(after))

    assert changed == ("python", "t.py", *spelt({**enough, **after}))
