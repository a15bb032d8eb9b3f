"""Put first on PYTHONPATH: waits for torch to be imported, and runs the user's own sitecustomize.

Every Python that the training starts runs this file, so it imports nothing and costs less than
3 ms. Once it has run it is gone: its folder is off ``sys.path``, and ``sitecustomize`` is the
user's own, or cannot be imported if there is none.
"""

import os
import sys

TYPE_CHECKING = False  # importing typing would cost more than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

HERE = os.path.dirname(__file__)
PAGES, WRITES = "ROCSTEADY_PAGES", "ROCSTEADY_WRITES"
INSIDE = "_rocsteady_inside"
TORCH = "torch"
LAUNCHER = "torch.distributed.elastic.rendezvous.api"
WATCHED = {
    TORCH,
    "torch.autograd",
    "torch.nn.modules.module",
    "torch.optim.optimizer",
    "torch.serialization",
    "torch.utils.data.dataloader",
    "torch.distributed.checkpoint.state_dict_loader",
    "torch.distributed.checkpoint.state_dict_saver",
    "torch.distributed.launcher.api",
    LAUNCHER,
    "torch._dynamo",
    "torch._dynamo.callback",
    "concurrent.futures.thread",
    "safetensors.torch",
    "transformers.trainer",
    "lightning.pytorch.trainer.trainer",
    "pytorch_lightning.trainer.trainer",
}

# A failing import prints the same lines as without us: Python leaves out frames of this file.
IMPORT_MACHINERY = "<frozen importlib._bootstrap_external>"
IS_STANDBY = os.path.exists(os.path.join(HERE, "standby"))


def note(what: str, error: BaseException) -> None:
    """Leave a line for the supervisor; there is nobody else to tell."""
    try:
        line = f"{what}: {type(error).__name__}: {' '.join(str(error).split())}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(os.path.join(os.environ[PAGES], f"{os.getpid()}.note"), flags, 0o600)
        try:
            os.write(descriptor, line.encode("utf-8", "replace")[:2000] + b"\n")
        finally:
            os.close(descriptor)
    except Exception:  # a note that cannot be left must not end the training
        return


class Finder:
    """Sees a few modules being imported; the only one it finds itself is ours."""

    def find_spec(
        self,
        name: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        """Answer ``import``: None, which is "ask the next one", for all but the few."""
        if name in WATCHED:
            return self._watched(name, path, target)
        if name == INSIDE:
            from _frozen_importlib_external import PathFinder  # noqa: PLC0415 - not at each start

            return PathFinder.find_spec(name, [HERE])
        return None

    def find_distributions(self, context: "Any") -> "Iterable[Any]":
        """Show torchrun the entry point beside this file, once our rendezvous is chosen."""
        chosen = os.environ.get("PET_RDZV_BACKEND") == "rocsteady"
        if not chosen or LAUNCHER not in sys.modules or context.name not in (None, "rocsteady"):
            return ()
        from importlib.metadata import (  # noqa: PLC0415 - not at each start
            DistributionFinder,
            MetadataPathFinder,
        )

        place = DistributionFinder.Context(name=context.name, path=[HERE])
        return MetadataPathFinder.find_distributions(place)

    def _watched(
        self, name: str, path: "Sequence[str] | None", target: "ModuleType | None"
    ) -> "ModuleSpec | None":
        spec: ModuleSpec | None = None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    break
        if spec is not None and spec.loader is not None:
            try:
                wrap(name, spec.loader)
            except Exception as error:  # it is then imported as without us
                note(f"hook of {name}", error)
        return spec


def wrap(name: str, loader: "Any") -> None:
    """Have ``loader`` tell us before and after it runs the module. It does so once."""
    execute = loader.exec_module

    def exec_module(module: "ModuleType") -> None:
        WATCHED.discard(name)
        loader.__dict__.pop("exec_module", None)
        tell("before", name, module)
        execute(module)
        tell("after", name, module)

    exec_module.__code__ = exec_module.__code__.replace(co_filename=IMPORT_MACHINERY)
    loader.exec_module = exec_module


def tell(when: str, name: str, module: "ModuleType") -> None:
    """Call ``_rocsteady_inside.heartbeat.hooks``, if this process has torch."""
    if TORCH in WATCHED:
        return
    try:
        # Only once there is torch.
        hooks = __import__(INSIDE + ".heartbeat.hooks", fromlist=["hooks"])
        getattr(hooks, when)(name, module)
    except Exception as error:  # whatever it is, the script must go on
        note(f"hook of {name}", error)


def install() -> None:
    """Begin to watch imports, and leave ``sys.path`` as if we had not been there."""
    try:
        if os.environ.get(PAGES):
            if TORCH in sys.modules:
                raise RuntimeError("torch was imported before sitecustomize")  # noqa: TRY301
            sys.meta_path.insert(0, Finder())
            if os.environ.get(WRITES):
                __import__(INSIDE + ".writes", fromlist=["writes"]).start()
    except Exception as error:  # whatever it is, the script must go on
        note("start", error)
    sys.path[:] = [entry for entry in sys.path if entry != HERE]


install()
sys.modules.pop(__name__, None)
try:
    __import__(__name__)  # the user's own; that there is none is what ``site`` is ready for
finally:
    if IS_STANDBY or os.path.exists(os.path.join(HERE, "imports")):  # after many failures
        try:
            __import__(INSIDE + ".standby")
        except BaseException as error:
            note("standby", error)
            if IS_STANDBY:  # it may not reach the script before its turn, whatever happens
                os._exit(1)
