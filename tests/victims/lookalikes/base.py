"""What the scripts of the corpus share: the training around an event, and where the event happens.

A case is text: a training script of 300 steps of 30 ms (`t.py`) in whose middle `event()` runs, in the
process that trains, in a loader worker or in one of two ranks; and, where it needs one, a second script
that the runner starts outside of the supervised tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from textwrap import indent
from typing import Any

HERE = "# here"  # marks a line that a report of the hang may name
PLACES = ("main", "worker", "rank")

COMMON = """\
import asyncio, atexit, contextlib, ctypes, fcntl, gzip, hashlib, json, logging, mmap, os, platform
import queue, select, shutil, signal, socket, sqlite3, struct, subprocess, sys, threading, time, types
import multiprocessing as mp
from concurrent.futures import ThreadPoolExecutor

WAIT, STEPS = {wait}, {steps}
libc = ctypes.CDLL(None, use_errno=True)
holds_gil = ctypes.PyDLL(None)
kept = []
FUTEX = {{"x86_64": 202}}.get(platform.machine(), 98)


class Span(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]

    def __init__(self, seconds):
        super().__init__(int(seconds), int(seconds % 1 * 1e9))


def mark(name):
    with open(name, "a") as file:
        file.write(f"{{time.time()}}\\n")


def mapped(name):
    with open(name, "a+b") as file:
        file.truncate(4096)
        byte = ctypes.c_char.from_buffer(mmap.mmap(file.fileno(), 4096))
    kept.append(byte)
    return ctypes.c_void_p(ctypes.addressof(byte))


def shared_mutex(address, robust=0):
    kind = ctypes.create_string_buffer(64)
    libc.pthread_mutexattr_init(kind)
    libc.pthread_mutexattr_setpshared(kind, 1)
    libc.pthread_mutexattr_setrobust(kind, robust)
    libc.pthread_mutex_init(address, kind)


def until_event():
    while not os.path.exists("event"):
        time.sleep(0.1)


def sleeping(seconds):
    return [sys.executable, "-c", f"import time; time.sleep({{seconds}})"]


"""

TRAINING = """\
import torch
import torch.distributed as dist

# Nothing here is compiled: without the compiler a script starts in half the time.
sys.modules["torch._dynamo"] = torch._dynamo = types.ModuleType("torch._dynamo")
torch._dynamo.graph_break, torch._dynamo.disable = lambda *_: None, lambda function, *_, **__: function
torch._dynamo.trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)
torch.set_num_threads(1)
mark("starts")
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(x, ranks=False):
    began = time.monotonic()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    if ranks:
        dist.all_reduce(model.weight.grad)
    optimizer.step()
    time.sleep(max(0, 0.03 - (time.monotonic() - began)))


"""

MAIN = """
if __name__ == "__main__":
    for step in range(STEPS):
        if step == STEPS // 2:
            event()
        train_step(torch.randn(8, 16))
{end}
"""

WORKER = """
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        if index == STEPS // 2:
            event()
        return torch.randn(16)


if __name__ == "__main__":
    for x in torch.utils.data.DataLoader(Samples(), num_workers=2{options}):
        train_step(x)
{end}
"""

RANK = """
def train_rank(rank, where=None):
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
    for step in range(STEPS):
        if rank == 1 and step == STEPS // 2:
            event()
        train_step(torch.randn(8, 16), ranks=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train_rank(int(os.environ["RANK"]))
    else:
        where = f"file://{{os.getcwd()}}/rendezvous"
        torch.multiprocessing.start_processes(train_rank, (where,), 2, start_method="fork")
    if os.environ.get("RANK", "0") == "0":
{end}
"""

OUTSIDE = """\
def ready():
    mark("outside-ready")


def server(kind=socket.AF_INET):
    listener = socket.socket(kind)
    listener.bind(("127.0.0.1", 0) if kind == socket.AF_INET else "socket")
    listener.listen()
    with open("port", "w") as file:
        file.write(str(listener.getsockname()[1]) if kind == socket.AF_INET else "")
    ready()
    return listener.accept()[0]


"""

TORCHRUN = ("PYTHON", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "t.py")
CONNECTION = 'socket.create_connection(("127.0.0.1", int(open("port").read())))'


@dataclass(frozen=True, kw_only=True)
class Case:
    """One script, what is done to it, and what must come of it."""

    name: str  # family/what, with -worker or -rank for where
    body: str  # of event(), in the middle of the training
    place: str = "main"
    setup: str = ""  # at module level, before the training
    end: str = 'mark("finished")'  # after the training
    options: str = ""  # of the DataLoader
    outside: str = ""  # a script that runs outside of the supervised tree
    command: tuple[str, ...] = ("PYTHON", "t.py")
    code: int = 0  # that the script ends with
    wait: float = 30  # seconds; the length of the event
    short: float = 20  # the same where time is short
    deed: str = ""  # what the runner does during the event
    needs: tuple[str, ...] = ()  # programs and built libraries
    expect: str = "healthy"  # or hung, slow, stopped
    arguments: tuple[str, ...] = field(default=())  # of `rocsteady run`

    @property
    def family(self) -> str:
        """The part of the name before the slash."""
        return self.name.partition("/")[0]

    def seconds(self, *, short: bool) -> float:
        """Return how long the event takes."""
        return self.short if short else self.wait

    def files(self, *, short: bool = False) -> dict[str, str]:
        """Return the scripts by name."""
        common = COMMON.format(wait=self.seconds(short=short), steps=100 if short else 300)
        event = f"def event():\n    mark('event')\n{indent(self.body.strip(), '    ')}\n\n"
        around = {"main": MAIN, "worker": WORKER, "rank": RANK}[self.place]
        depth = 8 if self.place == "rank" else 4
        around = around.format(end=indent(self.end.strip(), " " * depth), options=self.options)
        files = {"t.py": f"{common}{TRAINING}{self.setup.strip()}\n\n\n{event}{around}"}
        if self.outside:
            files["outside.py"] = common + OUTSIDE + self.outside.strip() + "\n"
        return files

    def lines(self) -> set[str]:
        """Return the places that a report of the hang may name, such as ``t.py:80``."""
        numbered = enumerate(self.files()["t.py"].splitlines(), 1)
        return {f"t.py:{number}" for number, line in numbered if HERE in line}


def everywhere(case: Case) -> Iterator[Case]:
    """Give a case in the process that trains, in a loader worker and in one of two ranks."""
    yield from at(case, *PLACES)


def at(case: Case, *places: str) -> Iterator[Case]:
    """Give a case at these places."""
    for place in places:
        name = case.name if place == "main" else f"{case.name}-{place}"
        yield replace(case, name=name, place=place)


def healthy(family: str, bodies: dict[str, str], **common: Any) -> Iterator[Case]:  # noqa: ANN401 - fields of Case
    """Give a family of healthy cases that differ in their event only; ``*`` means everywhere."""
    for name, body in bodies.items():
        case = Case(name=f"{family}/{name.rstrip('*')}", body=body, **common)
        yield from everywhere(case) if name.endswith("*") else [case]
