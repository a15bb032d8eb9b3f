"""Descriptions of failures without a message: how people write, against the entry that is meant."""

from __future__ import annotations

import pytest

from rocsteady.failures.own_words import MOST_WORDS, guesses

# Written from the reports of the field notes and the situations of the docs, not from the data.
DESCRIBED = {
    "loss.backward() hangs on windows, no error": "hang-in-backward",
    "after a few hundred batches the backward just stops and never comes back": "hang-in-backward",
    "training freezes with num_workers>0": "hang-in-loader",
    "second epoch never starts, the workers sit there": "hang-in-loader",
    "GPU at 100 % but nothing happens": "hang-in-sync",
    "progress bar does not move anymore and there is no traceback": "hang",
    "runs on cpu although I have a gpu": "torch-without-gpu-support",
    "my pc crashes and reboots when training starts": "machine-went-down",
    "whole desktop freezes, i have to press the reset button": "machine-went-down",
    "screen goes black for a moment and then my training is dead": "gpu-reset",
    "loss turns into nan after 2 hours": "nan-loss",
    "with both cards it gets stuck, with one card it trains": "hang-in-collective",
    "python just closes without any message": "segfault",
    "RAM fills up slowly until linux kills python": "oom-host",
    "not enough vram for batch size 8": "oom-device",
    "saving the checkpoint takes forever and never returns": "hang-in-checkpoint",
    "first iteration of my resnet takes 20 minutes": "hang-in-kernel-search",
    "docker container cannot open the gpu, permission denied": "no-access-to-gpu",
    "pip gave me the nvidia version of torch": "torch-without-gpu-support",
    "training is finished but the process stays alive": "hang-at-exit",
}


@pytest.mark.parametrize("text", DESCRIBED)
def test_what_is_meant_is_among_the_guesses(text: str) -> None:
    found = [guess.id for guess in guesses(text)]

    assert DESCRIBED[text] in found
    assert len(found) <= 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all is well",
        "how long do I bake bread",
        "ValueError: the training hangs",  # a program's words are named, or not at all
        "training hangs " * MOST_WORDS,
        "training hangs with 2" + "x" * 100_000,  # at once, too
        "\u6b7b\u9501",
    ],
)
def test_nothing_is_guessed_of_what_describes_no_failure(text: str) -> None:
    assert guesses(text) == ()
