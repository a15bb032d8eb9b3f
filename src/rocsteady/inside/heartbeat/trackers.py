"""Where the script logs its own numbers: told each time that it begins to, and nothing else.

What is hooked are the public functions that begin a run; they are called as before, and only what
they return is looked at.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from ..wire import TRACKERS_SUFFIX, TRACKERS_VERSION
from . import page

LIMIT = 1000  # characters of a name
InPlaceOf = Callable[[Any, Any], Any]

_told: dict[str, dict[str, str]] = {}  # by kind


def tensorboard(module: Any, in_place_of: InPlaceOf) -> None:
    """Be told of each ``SummaryWriter``, of torch or of tensorboardX."""
    writer = module.SummaryWriter
    original = writer.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes that method
        original(self, *args, **kwargs)
        _tell("tensorboard", lambda: {"folder": _folder(self)})

    writer.__init__ = in_place_of(original, __init__)


def wandb(module: Any, in_place_of: InPlaceOf) -> None:
    """Be told of ``wandb.init``."""
    _around(module, "init", in_place_of, "wandb", _wandb)


def trackio(module: Any, in_place_of: InPlaceOf) -> None:
    """Be told of ``trackio.init``."""
    names = ("project", "name", "_space_id", "_server_base_url")
    _around(module, "init", in_place_of, "trackio", lambda run, _: _named(run, names))


def mlflow(module: Any, in_place_of: InPlaceOf) -> None:
    """Be told of new runs, also of those that ``mlflow.start_run`` makes through the client."""
    _around(module.MlflowClient, "create_run", in_place_of, "mlflow", _mlflow)


HOOKS = {
    "torch.utils.tensorboard.writer": tensorboard,
    "tensorboardX.writer": tensorboard,
    "wandb": wandb,
    "mlflow.tracking.client": mlflow,
    "trackio": trackio,
}


def imported_before(in_place_of: InPlaceOf) -> None:
    """Take up what was imported before torch: until then nobody was told."""
    for name, hook in HOOKS.items():
        module = sys.modules.get(name)
        if module is not None:
            try:
                hook(module, in_place_of)
            except Exception as error:  # ours, and not the script's business
                page.note(f"hook of {name}", error)


def _around(
    owner: Any, name: str, in_place_of: InPlaceOf, kind: str, where: Callable[[Any, Any], Any]
) -> None:
    original = getattr(owner, name)

    def begin(*args: Any, **kwargs: Any) -> Any:
        run = original(*args, **kwargs)
        _tell(kind, lambda: where(run, args[0] if args else None))
        return run

    setattr(owner, name, in_place_of(original, begin))


def _wandb(run: Any, _: Any) -> dict[str, str] | None:
    if run is None or getattr(run, "disabled", False):
        return None
    return _named(run, ("project", "entity", "id", "name"))


def _mlflow(run: Any, client: Any) -> dict[str, str]:
    return {"uri": str(client.tracking_uri), "run": str(run.info.run_id)}


def _folder(writer: Any) -> str:
    folder = str(getattr(writer, "log_dir", "") or writer.logdir)
    return folder if "://" in folder else os.path.abspath(folder)


def _named(run: Any, names: tuple[str, ...]) -> dict[str, str]:
    values = {name: getattr(run, name, None) for name in names}
    return {name: str(value)[:LIMIT] for name, value in values.items() if value}


def _tell(kind: str, where: Callable[[], dict[str, str] | None]) -> None:
    """Leave it for the supervisor. What goes wrong here is not the script's business."""
    try:
        if page.is_loader_worker():
            return
        found = where()
        if not found:
            return
        import json  # noqa: PLC0415 - not at the start of a Python

        _told[kind] = found
        told = [{"kind": kind, "where": where} for kind, where in _told.items()]
        content = {"version": TRACKERS_VERSION, "trackers": told}
        where_we_are = {"python": sys.executable, "folder": os.getcwd()}
        page.leave(TRACKERS_SUFFIX, json.dumps({**content, **where_we_are}).encode())
    except Exception as error:
        page.note(f"where {kind} logs", error)
