"""Trainer of Hugging Face transformers.

::

    trainer = Trainer(model, args, callbacks=[RocsteadyCallback()], ...)
    trainer.train(resume_from_checkpoint=newest_checkpoint(args.output_dir))
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from rocsteady_train.checkpoints import integrity as file_integrity
from rocsteady_train.checkpoints.folder import ASIDE, steps
from rocsteady_train.checkpoints.folder_changes import set_aside
from rocsteady_train.checkpoints.integrity import EVERYTHING, log, newest_whole
from rocsteady_train.loop import supervisor_link
from rocsteady_train.untrusted_file import read_regular

PATTERN = "checkpoint-*"
STATE = "trainer_state.json"  # the Trainer writes it last
INCOMPLETE = "checkpoint-is-incomplete.txt"  # left by its own save at SIGTERM, if that was cut off
# What must be there if something is: a checkpoint of save_only_model has none of them.
NEEDS = {
    "scheduler.pt": ("optimizer", "global_step"),  # FSDP and DeepSpeed have folders so named
    "optimizer.pt": ("scheduler.pt",),
    "optimizer": ("rng_state",),
}
_NAME = re.compile(r"checkpoint-([0-9]{1,18})")
_MODEL = re.compile(
    r"(?:model|pytorch_model|adapter_model)[\w.-]*\.(?:safetensors|bin)"
    r"|pytorch_model_fsdp\w*|global_step[0-9]+"  # folders of FSDP and DeepSpeed
)


def newest_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """Return the newest checkpoint that is whole, for ``resume_from_checkpoint``.

    None: there is none, and the training begins at its beginning. Under ``rocsteady run`` the
    supervisor is told that this script goes on by itself.
    """
    root = Path(output_dir)
    return newest_whole(root, PATTERN, steps(root, _step_of), what_is_wrong)


def what_is_wrong(checkpoint: Path) -> str:
    try:
        names = {path.name for path in checkpoint.iterdir()}
        if STATE not in names or INCOMPLETE in names:
            return "was not finished"
        return file_integrity.wrong_with_files_in(checkpoint, EVERYTHING) or _missing_in(
            checkpoint, names
        )
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    except (AttributeError, KeyError, TypeError):
        return "has JSON that is not the Trainer's"


class RocsteadyCallback(TrainerCallback):
    """Tells the supervisor of the work, and saves when it asks, or when SIGTERM comes.

    With several ranks these would have to agree on the step at which they save. There the Trainer's
    own ``save_steps`` is what counts.
    """

    def __init__(self) -> None:
        self._asked = 0  # by the supervisor, for a save
        self._ending = False  # SIGTERM came
        self._alone = True
        self._listening = False
        self._phase = contextlib.ExitStack()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002 - a hook of the Trainer
        supervisor_link.total(state.max_steps)
        supervisor_link.began_at(state.global_step)
        self._asked = supervisor_link.save_is_wanted()
        self._alone = args.world_size == 1
        if state.is_world_process_zero:
            _set_aside(Path(args.output_dir), state.global_step)
        self._listen()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002
        """Be told that training goes on, also where another callback took a save back."""
        self._phase.close()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002
        """Have the Trainer save, if that is wanted."""
        if self._alone and (self._ending or supervisor_link.save_is_wanted() != self._asked):
            control.should_save = True
        if control.should_save and not control.should_evaluate:
            self._phase.enter_context(supervisor_link.saving())

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002
        self._phase.close()
        self._asked = supervisor_link.save_is_wanted()
        if self._ending:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            saved = "saved" if (folder / STATE).exists() else "could not save"
            text = "rocsteady: SIGTERM received: %s step %d; exiting."
            log.warning(text, saved, state.global_step)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002
        self._phase.close()
        if self._listening:
            self._listening = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _listen(self) -> None:
        """Save before ending, unless the script or ``enable_jit_checkpoint`` has its own way."""
        if (
            self._alone
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        ):
            signal.signal(signal.SIGTERM, self._asked_to_end)
            self._listening = True

    def _asked_to_end(self, *_: object) -> None:
        self._ending = True


def _step_of(checkpoint: Path) -> int | None:
    match = _NAME.fullmatch(checkpoint.name)
    return int(match.group(1)) if match else None


def _missing_in(checkpoint: Path, names: set[str]) -> str:
    recorded = _json(checkpoint / STATE)["global_step"]
    if recorded != _step_of(checkpoint):
        return f"says in {STATE} that it is of step {recorded}"
    if not any(_MODEL.fullmatch(name) for name in names):
        return "has no model"
    missing = [*_missing_shards(checkpoint), *_missing_beside(names)]
    return f"has no {missing[0]}" if missing else ""


def _missing_shards(checkpoint: Path) -> list[str]:
    """Name the files of a model in several files that are not there."""
    return [
        name
        for index in sorted(checkpoint.glob("*.index.json"))
        for name in sorted(set(_json(index).get("weight_map", {}).values()))
        if not (checkpoint / name).is_file()
    ]


def _json(path: Path) -> Any:  # noqa: ANN401 - JSON
    return json.loads(read_regular(path, file_integrity.JSON_LIMIT))


def _missing_beside(names: set[str]) -> list[str]:
    return [
        wanted[0]
        for name, wanted in NEEDS.items()
        if any(there.startswith(name) for there in names)
        and not any(there.startswith(wanted) for there in names)
    ]


def _set_aside(root: Path, step: int) -> None:
    """Move checkpoints of later steps away: the Trainer would write into their folders.

    Killed in the middle of that, new files would lie there beside old ones and look whole.
    """
    for later, path in sorted(steps(root, _step_of)):
        if later > step:
            set_aside(path)
            if not path.exists():
                text = "%s is of a later step than %d, from which this goes on; it is kept in %s"
                log.warning("rocsteady: " + text + ".", path, step, ASIDE)
