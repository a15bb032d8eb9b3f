"""Give the trainer of transformers or Lightning the checkpoint to go on from: --resume-trainer.

Only imported in a restart. The first call that trains and names no checkpoint gets it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from . import wire
from .heartbeat import page

ARGUMENTS = {"train": "resume_from_checkpoint", "fit": "ckpt_path"}


def give_checkpoint(module: Any, in_place_of: Callable[[Any, Any], Any]) -> None:
    trainer = module.Trainer
    name = next(each for each in ARGUMENTS if each in vars(trainer))
    original = getattr(trainer, name)
    signature = inspect.signature(original)
    given: list[str] = []

    def resumed(*args: Any, **kwargs: Any) -> Any:  # whatever it takes
        try:
            call = signature.bind(*args, **kwargs)
            checkpoint = os.environ[wire.RESUME_TRAINER]
            if not given and not call.arguments.get(ARGUMENTS[name]):
                call.arguments[ARGUMENTS[name]] = checkpoint
                args, kwargs = call.args, call.kwargs
                given.append(checkpoint)
        except Exception as error:  # it then starts over, which the supervisor sees
            page.note("the checkpoint for a trainer", error)
        return original(*args, **kwargs)

    setattr(trainer, name, in_place_of(original, resumed))
