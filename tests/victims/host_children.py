"""Real children for tests of host/: how they are started, read, and looked for afterwards."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from rocsteady.system.child import Child, Start, start_child
from rocsteady.system.child_end import TerminalUse

VICTIMS = Path(__file__).parent


class Reader:
    """The other end of a pipe or terminal of ours, read by a thread until its end."""

    def __init__(self, descriptor: int, *, after: float = 0.0) -> None:
        self._descriptor = descriptor
        self._after = after
        self._got = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def so_far(self) -> bytes:
        return bytes(self._got)

    def wait_for(self, text: bytes, within: float = 20.0) -> bytes:
        deadline = time.monotonic() + within
        while text not in self._got:
            assert time.monotonic() < deadline, f"{text!r} is not in {bytes(self._got)[-2000:]!r}"
            time.sleep(0.01)
        return bytes(self._got)

    def all(self) -> bytes:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return bytes(self._got)

    def _read(self) -> None:
        time.sleep(self._after)
        with contextlib.suppress(OSError):  # a terminal ends with EIO
            while chunk := os.read(self._descriptor, 65536):
                self._got += chunk
        os.close(self._descriptor)


class Children:
    """Starts children in the test's folder, by victim or by command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.run_id = uuid.uuid4().hex
        self.started: list[Child] = []

    def start(
        self,
        *command: str,
        use: TerminalUse | None = None,
        on_output: Callable[[bytes], None] | None = None,
        **environment: str,
    ) -> Child:
        child = start_child(
            Start(
                command=command,
                environment={**os.environ, **environment},
                folder=self.folder,
                run_id=self.run_id,
                log=self.log,
                on_output=on_output,
                terminal=use or TerminalUse(stdin=None, stdout=None, stderr=None),
            )
        )
        self.started.append(child)
        return child

    def victim(self, name: str, *arguments: str, use: TerminalUse | None = None) -> Child:
        return self.start(sys.executable, str(VICTIMS / f"{name}.py"), *arguments, use=use)

    def logged(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line[25:] for line in lines)

    def wait_for_log(self, text: str, within: float = 20.0) -> None:
        deadline = time.monotonic() + within
        while text not in self.logged():
            assert time.monotonic() < deadline, self.logged()[-2000:]
            time.sleep(0.01)


def bearing(run_id: str) -> list[int]:
    """Find processes of a run without any of our own code; zombies have no environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if f"ROCSTEADY_RUN={run_id}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def our_descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def missed(child: Child) -> int:
    """Count the bytes that were not shown, because their reader was slow or gone."""
    buffers = (source.output_buffer for source in child._wiring.sources.values())
    return sum(buffer.missed for buffer in buffers if buffer is not None)
