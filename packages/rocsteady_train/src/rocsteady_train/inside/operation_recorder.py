"""Write down each operation before torch carries it out, so that one that never returns is known.

Only imported in a probe. The mode is entered once, where torch is imported, and follows into
autograd's threads. On a device it waits for each operation, so that the one in flight is the one
that is stuck. An error of ours leaves a note and ends the recording; the script goes on.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import sys
import threading
from time import monotonic_ns
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from . import wire
from .heartbeat import page
from .heartbeat.heart import Heart
from .operation_call import (
    Call,
    Watcher,
    described,
    leave_origin,
    on_cpu,
    save_inputs,
    tensors_in,
)

FRAMES = 120  # looked at for the user's own line
REMEMBERED = 200_000  # forward operations whose lines are known to their backward
KEPT = "inputs.pt"
LIBRARIES = ("site-packages", "dist-packages", "_rocsteady_inside", "<frozen ", "<string>")


class Recorder(TorchDispatchMode):
    def __init__(self, heart: Heart) -> None:
        super().__init__()
        self._heart = heart
        order = json.loads(os.environ[wire.RECORD])
        if order["version"] != wire.RECORD_VERSION:
            raise ValueError(f"recorder: not of version {wire.RECORD_VERSION}")
        self._keep, self._folder = order.get("keep", ""), order.get("folder", "")
        self._on_cpu = order.get("on_cpu", "")
        self._number = 0
        self._lines: dict[int, tuple[str, str]] = {}  # by autograd's sequence number
        self._places = Places()
        self._open()
        self.watchers: list[Watcher] = []
        if order.get("numbers"):
            from .numbers import Comparison  # noqa: PLC0415 - only where it was asked for

            self.watchers.append(Comparison(order["numbers"], heart))
        elif order.get("finite", True):
            from .finite import Origins  # noqa: PLC0415 - not beside a comparison

            self.watchers.append(Origins(heart))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile compile as it does without us."""
        return True

    def _open(self) -> None:
        self._pid = os.getpid()
        size = wire.SLOTS * wire.SLOT
        descriptor = page._new_file(page._name(wire.OPERATION_SUFFIX), os.O_RDWR)  # noqa: SLF001
        try:
            os.ftruncate(descriptor, size)
            self._bytes = memoryview(mmap.mmap(descriptor, size))
        finally:
            os.close(descriptor)
        self._words = self._bytes.cast("Q")
        self._slots: dict[int, int] = {}  # by thread
        self._active = True

    def _after_fork(self) -> None:
        self._active = False  # a loader's worker; a rank begins again at its first operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        call = base = None
        kept: list[Any] = []
        try:
            if self._ready():
                call = Call(func, args, kwargs)
                base = self._begin(call)
                if self._keep and call.text["key"] == self._keep:
                    save_inputs(call, os.path.join(self._folder, KEPT))
                kept = [watcher.before(call) for watcher in self.watchers]
        except Exception as error:  # ours, and not the script's business
            self._stop(error)
            call = None
        try:
            moved = call if call and call.name == self._on_cpu else None
            result = on_cpu(moved) if moved else func(*args, **kwargs)
            if base is not None:
                _wait_for(args, result)
        except BaseException as error:
            self._raised(base, call, error)
            raise
        if call is not None and base is not None:
            try:
                self._words[base + wire.O_STATE] = wire.CAME_BACK
                for watcher, before in zip(self.watchers, kept):
                    watcher.after(call, result, before)
                if call.suspect and call.text["key"] == self._keep:
                    self._keep = ""  # what is kept is what it went wrong with
            except Exception as error:  # ours, and not the script's business
                self._stop(error)
        return result

    def _ready(self) -> bool:
        if not self._active and self._pid != os.getpid() and not page.is_loader_worker():
            self._open()
        return self._active

    def _begin(self, call: Call) -> int | None:
        """Write it down where a crash does not take it along."""
        thread = threading.get_ident()
        slot = self._slots.setdefault(thread, len(self._slots) % wire.SLOTS)
        self._number += 1
        self._locate(call)
        args = described(list(call.args))
        kwargs = {name: described(value) for name, value in call.kwargs.items()}
        spelt = json.dumps([str(call.func), args, kwargs])
        call.text = {
            "name": call.name,
            "overload": call.func._overloadname,  # noqa: SLF001
            "args": args,
            "kwargs": kwargs,
            "line": call.place[0],
            "module": call.place[1],
            "phase": "backward" if call.backward else wire.PHASES[self._heart.phase],
            "step": self._heart.steps + 1,
            "number": self._number,
            "key": hashlib.sha256(spelt.encode()).hexdigest()[:16],
        }
        text = json.dumps(call.text).encode()
        if len(text) > wire.SLOT - wire.O_TEXT:
            text = json.dumps({**call.text, "args": [], "kwargs": {}}).encode()
        base = slot * wire.SLOT // 8
        words, start = self._words, slot * wire.SLOT + wire.O_TEXT
        words[base + wire.O_STATE] = wire.NO_OPERATION
        self._bytes[start : start + len(text)] = text
        words[base + wire.O_LENGTH] = len(text)
        words[base + wire.O_NUMBER] = self._number
        words[base + wire.O_BEGAN] = monotonic_ns()
        words[base + wire.O_STATE] = wire.IN_FLIGHT
        return base

    def _locate(self, call: Call) -> None:
        """Find the user's line and the module; of a backward those of its forward."""
        torch = sys.modules["torch"]
        node = torch._C._current_autograd_node()  # noqa: SLF001
        if node is None:
            call.place = self._places.here()
            if torch.is_grad_enabled():
                if len(self._lines) > REMEMBERED:
                    self._lines.clear()
                # The first operation of a number is the one whose backward bears it.
                number = torch.autograd._get_sequence_nr() - 1  # noqa: SLF001
                self._lines.setdefault(number, call.place)
            return
        call.backward = True
        call.place = self._lines.get(node._sequence_nr()) or self._places.here()  # noqa: SLF001

    def _raised(self, base: int | None, call: Call | None, error: BaseException) -> None:
        try:
            if base is None or call is None:
                return
            self._words[base + wire.O_STATE] = wire.HAS_RAISED
            found = {"kind": "raised", "type": type(error).__name__, "message": str(error)[:2000]}
            leave_origin({**found, "operation": call.text})
        except Exception as problem:  # ours, and not the script's business
            self._stop(problem)

    def _stop(self, error: Exception) -> None:
        self._active = False
        page.note("operations are not recorded any more", error)


def _wait_for(args: Any, result: Any) -> None:
    """Wait until a device has done it; the processor has when the call returns."""
    torch = sys.modules["torch"]
    for tensor in tensors_in((result, args)):
        kind = tensor.device.type
        if kind in ("cpu", "meta"):
            continue
        if kind == "cuda":
            if not torch.cuda.is_current_stream_capturing():
                torch.cuda.synchronize(tensor.device)
        elif hasattr(torch, "accelerator"):
            torch.accelerator.synchronize()
        return


class Places:
    """Finds the line of the user's own code that is under way, and the module."""

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self._torch = os.path.dirname(str(torch.__file__)) + os.sep
        self._standard = os.path.dirname(os.__file__) + os.sep
        self._own: dict[str, bool] = {}
        self._names: dict[int, dict[int, str]] = {}  # of modules, by the outermost one

    def here(self) -> tuple[str, str]:
        frame = sys._getframe(2)  # noqa: SLF001
        line, modules = "", []
        for _ in range(FRAMES):
            code = frame.f_code
            if code.co_name == "_call_impl" and code.co_filename.startswith(self._torch):
                modules.append(frame.f_locals.get("self"))
            if not line and self._is_own(code.co_filename):
                named = getattr(code, "co_qualname", code.co_name)
                file = code.co_filename.removeprefix(os.getcwd() + os.sep)
                line = f"{file}:{frame.f_lineno} in {named}"
            if frame.f_back is None:
                break
            frame = frame.f_back
        return line, self._named(modules)

    def _is_own(self, file: str) -> bool:
        own = self._own.get(file)
        if own is None:
            own = self._own[file] = not (
                file.startswith((self._torch, self._standard))
                or any(each in file for each in LIBRARIES)
            )
        return own

    def _named(self, modules: list[Any]) -> str:
        if not modules:
            return ""
        inner, outer = modules[0], modules[-1]
        names = self._names.get(id(outer))
        if names is None or id(inner) not in names:
            names = {id(module): name for name, module in outer.named_modules()}
            self._names = {id(outer): names}
        return f"{names.get(id(inner), '')} ({type(inner).__name__})".strip()
