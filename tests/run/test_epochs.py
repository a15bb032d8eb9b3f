"""Epochs are what a script says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocsteady.run.job import printed_epochs as epochs
from rocsteady.run.job.printed_epochs import epochs_printed


@pytest.mark.parametrize(
    ("log", "reached"),
    [
        ("", None),
        ("step 3/3", None),
        ("--epochs 10 max_epochs=10 Num Epochs = 10", None),  # asked for, not done
        ("Epoch 1/3\nEpoch 2/3\nEpoch 3/3", 3),
        ("Epoch [2/3], loss 0.1", 2),
        ("Epoch 0: 100%|####|\nEpoch 2: 100%|####|", 3),  # counted from 0
        ("{'loss': 0.1, 'epoch': 0.33}\n{'loss': 0.1, 'epoch': 2.0}", 2),
        ("epoch=2-step=40.ckpt", 2),
        ("epoch #7", 7),
    ],
)
def test_the_highest_epoch_counts(tmp_path: Path, log: str, reached: int | None) -> None:
    (tmp_path / "log").write_text(log)

    assert epochs_printed(tmp_path / "log") == reached


def test_an_epoch_across_two_pieces_of_a_log_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "LOG_CHUNK", 5)
    (tmp_path / "log").write_text("x" * 100 + " Epoch 12/12 " + "y" * 100)

    assert epochs_printed(tmp_path / "log") == 12


def test_a_log_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    assert epochs_printed(tmp_path / "log") is None
