"""Scripts print their loss in many ways; a validation loss is not the training's."""

from __future__ import annotations

import pytest

from rocsteady.hangs.output import OutputCounter, printed_loss

TOLD = {
    "step 3 loss 0.5": 0.5,
    "loss: 1e-3 | lr 0.1": 0.001,
    "{'loss': 0.43, 'learning_rate': 5e-05}": 0.43,
    "100/100 - loss: 0.5 - val_loss: 0.6": 0.5,
    "val_loss=0.6 loss=0.5": 0.5,
    "Train Loss: 0.7": 0.7,
    "loss tensor(0.5, grad_fn=<MeanBackward0>)": 0.5,
    " 12%|1| 9/7500 [00:10<52:00, 2it/s, loss=0.52]": 0.52,
    "iter 7: loss -3.25, time 10ms": -3.25,
}
NOT_TOLD = (
    "val loss: 3",
    "validation loss 4",
    "test/loss 0.1",
    "best loss 0.1",
    "lossless 3",
    "loss nano",
    "loss information",
    "loss 3/4",
    "loss went to 0.5x",
    "step 4",
    "loss" * 200,
)


@pytest.mark.parametrize("line", TOLD)
def test_a_loss_is_read(line: str) -> None:
    assert printed_loss(line) == TOLD[line]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("loss=nan", "nan"),
        ("{'loss': nan, 'epoch': 1}", "nan"),
        ("train_loss=nan.0, v_num=3", "nan"),
        ("step 3 loss inf", "inf"),
        ("loss: -Infinity", "-inf"),
    ],
)
def test_a_loss_that_is_no_number_is_read(line: str, told: str) -> None:
    assert str(printed_loss(line)) == told


def test_losses_that_are_no_numbers_are_counted_and_not_drawn() -> None:
    counter = OutputCounter()
    counter.feed(b"step 1 loss 0.5\nstep 2 loss nan\nstep 3 loss inf\n", 0.0)
    assert (counter.take_loss(), counter.losses_not_finite) == (0.5, 2)
    counter.feed(b"step 4 loss 0.4\n", 0.0)
    assert (counter.take_loss(), counter.losses_not_finite) == (0.4, 0)


@pytest.mark.parametrize("line", NOT_TOLD)
def test_what_is_no_training_loss_is_left_alone(line: str) -> None:
    assert printed_loss(line) is None


def test_a_loss_is_taken_once() -> None:
    counter = OutputCounter()
    counter.feed(b"step 1 loss 0.5\nstep 2 loss 0.4\nstep 3\n", 0.0)
    assert counter.take_loss() == 0.4
    assert counter.take_loss() is None
