"""Stages the failures of forty.toml: a torch script each, under ``rocsteady run``, no job file.

    sudo python tests/failing/forty.py --python PYTHON-WITH-TORCH --jobs 4 --out forty.jsonl

One JSON line a failure; those that --out has already are not run again. Needs root: each failure
gets a mount namespace of its own. What the user saw, on a terminal of 80 columns, is in
FOLDER/NAME/terminal.txt. About 40 minutes.

Everything fails as it does for users: servers, file systems, signals and cgroups are real.
Imitated: quota and stale handle come from a FUSE server of ours; the GPU's memory error is raised
by the script with torch's own text, and the process that holds the memory is in a file of ours, in
the place and form of the driver's.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STEPS, SAVES_EVERY, FAILS_AT = 60, 10, 25
GIVE_UP_AFTER = 40.0  # seconds, for those that do not clear up
SLACK = 45.0  # seconds that each start of torch may take, on a busy machine
CLEANED = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r")
SCRIPT = """\
import argparse
import os
import time

with open("starts.txt", "a") as starts:
    starts.write(f"{{os.getpid()}}\\n")

import torch
{imports}
OUT = "{out}"

parser = argparse.ArgumentParser()
parser.add_argument("--resume", help="checkpoint to continue from")
args = parser.parse_args()

model = torch.nn.Linear({width}, {width})
optimizer = torch.optim.AdamW(model.parameters())
done = 0
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done = state["step"]
os.makedirs(OUT, exist_ok=True)
{before}
for step in range(done + 1, {steps} + 1):
    x = torch.randn(8, {width})
{each}
    optimizer.zero_grad()
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.1)
    with open("steps.txt", "a") as log:
        log.write(f"{{os.getpid()}} {{step}}\\n")
    if step % {every} == 0:
        print(f"step {{step}} loss {{loss.item():.4f}}", flush=True)
        state = {{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}}
        torch.save(state, f"{{OUT}}/step{{step}}.pt")
print("finished")
"""


@dataclass(frozen=True, kw_only=True)
class Staged:
    """How a failure is made: lines for the script, and what happens around it."""

    begin: Callable[[Stage], object] = lambda _: None  # before the script starts, or at FAILS_AT
    clear: Callable[[Stage], object] = lambda _: None
    prepare: Callable[[Stage], object] = lambda _: None
    at_start: bool = True  # begins before the first step, else at step FAILS_AT
    imports: str = ""
    before: str = ""
    each: str = ""
    out: str = "checkpoints"
    width: int = 8
    memory: int = 0  # bytes of the cgroup that all is in; 0: none
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Result:
    name: str
    right: bool
    wrong: tuple[str, ...]
    code: int | None
    expected: int
    seconds: float
    failed_for: float  # seconds from the beginning of the failure to the end of the run
    starts: int
    steps: int  # different ones
    lines: tuple[str, ...]  # of rocsteady


class Stage:
    """One folder, one run, one failure."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project, self.home = folder, folder / "project", folder / "home"
        for made in (self.project, self.home):
            made.mkdir(parents=True)
        self.port = _free_port()
        self.answer = 200  # of the server; 0: reset, -1: none
        self.server: ThreadingHTTPServer | None = None
        self.children: list[subprocess.Popen[bytes]] = []
        self.sockets: list[socket.socket] = []
        self.locks: list[Any] = []
        self.over = threading.Event()

    # servers

    def serve(self) -> None:
        self.server = _Server(("127.0.0.1", self.port), _Answers)
        self.server.stage = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop_serving(self) -> None:
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def listen(self) -> None:
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("", self.port))
        other.listen()
        self.sockets.append(other)

    def close(self) -> None:
        for opened in self.sockets:
            opened.close()

    # disks

    def disk(self, name: str, megabytes: int = 64) -> Path:
        image, place = self.folder / f"{name}.img", self.folder / name
        _shell(f"truncate -s {megabytes}M {image}; mkfs.ext4 -q -m 0 {image}")
        place.mkdir()
        self.mount(name)
        return place

    def mount(self, name: str) -> None:
        _shell(f"mount -o loop {self.folder}/{name}.img {self.folder}/{name}")

    def unmount(self, name: str) -> None:
        _shell(f"umount -l {self.folder}/{name}")

    def drive(self) -> None:
        (self.folder / "remote").mkdir(exist_ok=True)
        (self.folder / "data").mkdir(exist_ok=True)
        words = [sys.executable, str(HERE / "network_drive.py")]
        child = subprocess.Popen(
            [*words, str(self.folder / "remote"), str(self.folder / "data")], stdout=subprocess.PIPE
        )
        self.children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"mounted\n"

    def fill(self, place: Path) -> None:
        with contextlib.suppress(OSError), (place / "other.bin").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * (1 << 20))
        with contextlib.suppress(OSError), (place / "other2.bin").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 512)

    def free(self, place: Path) -> None:
        for file in place.glob("other*.bin"):
            file.unlink()

    def shards(self, place: Path) -> None:
        place.mkdir(exist_ok=True)
        for number in range(4):
            (place / f"shard{number}.bin").write_bytes(os.urandom(8 * 8))

    # processes

    def other(self, *words: str) -> None:
        self.children.append(subprocess.Popen(list(words), stdout=subprocess.DEVNULL))

    def end_others(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()

    def pids(self) -> list[int]:
        return [int(line) for line in _lines(self.project / "starts.txt")]

    def steps(self) -> list[tuple[int, int]]:
        rows = (line.split() for line in _lines(self.project / "steps.txt"))
        return [(int(row[0]), int(row[1])) for row in rows if len(row) == 2]

    def kill(self, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(self.pids()[-1], number)

    def kill_when(self, condition: Callable[[int], bool]) -> None:
        """Kill each process of the script when it meets the condition, until the failure clears."""

        def watch() -> None:
            killed: set[int] = set()
            while not self.over.wait(0.05):
                for pid in self.pids()[-1:]:
                    if pid not in killed and condition(pid):
                        killed.add(pid)
                        self.kill()

        threading.Thread(target=watch, daemon=True).start()


class _Server(ThreadingHTTPServer):
    stage: Stage
    daemon_threads = True
    allow_reuse_address = True


class _Answers(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        code = self.server.stage.answer
        if code == -1:
            time.sleep(60)
            return
        if code == 0:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        weights = self.server.stage.folder / "weights.pt"
        body = b"no" if code != 200 else os.urandom(64)
        if code == 200 and self.path.endswith(".pt"):
            body = weights.read_bytes()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _answering(code: int) -> Callable[[Stage], object]:
    def change(stage: Stage) -> None:
        stage.answer = code

    return change


def _also(*deeds: Callable[[Stage], object]) -> Callable[[Stage], object]:
    def all_of_them(stage: Stage) -> None:
        for deed in deeds:
            deed(stage)

    return all_of_them


def _network(stage: Stage) -> None:
    """Give names of their own to this namespace, and no server for other names."""
    for name, text in (
        ("hosts", "127.0.0.1 localhost\n"),
        ("resolv.conf", "nameserver 127.0.0.1\n"),
    ):
        (stage.folder / name).write_text(text)
        _shell(f"mount --bind {stage.folder / name} /etc/{name}")


def _weights(stage: Stage) -> None:
    python = os.environ["FORTY_PYTHON"]
    code = (
        f"import torch; torch.save(torch.nn.Linear(8, 8).state_dict(), '{stage.folder}/weights.pt')"
    )
    subprocess.run([python, "-c", code], check=True)


def _knows_name(stage: Stage) -> None:
    with (stage.folder / "hosts").open("a") as hosts:
        hosts.write("127.0.0.1 data.lab\n")


def _locks(stage: Stage) -> None:
    file = (stage.project / "cache.lock").open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    stage.locks.append(file)


def _unlocks(stage: Stage) -> None:
    for file in stage.locks:
        file.close()


def _few_steps(stage: Stage) -> None:
    """Kill after 5 steps of each process: before it can save."""
    stage.kill_when(lambda pid: sum(row[0] == pid for row in stage.steps()) >= 5)


def _at_start(stage: Stage) -> None:
    seen: dict[int, float] = {}

    def has_run_a_while(pid: int) -> bool:
        return time.monotonic() - seen.setdefault(pid, time.monotonic()) > 1

    stage.kill_when(has_run_a_while)


def _hog(stage: Stage) -> None:
    """Take memory. The kernel kills the script for it, which says that it may (oom_score_adj)."""
    code = (
        "import time; taken = []\n"
        "for _ in range(78): taken.append(b'x' * (10 << 20)); time.sleep(0.02)\n"
        "time.sleep(1000)"
    )
    stage.other(sys.executable, "-c", code)


def _gpu_of_others(_: Stage) -> None:
    """List a process that holds most of a GPU's memory, where the driver of AMD's GPUs does."""
    _shell("mount -t tmpfs kfd /sys/class; mkdir -p /sys/class/kfd/kfd/proc/4410")
    Path("/sys/class/kfd/kfd/proc/4410/vram_35115").write_text(f"{int(17.9 * (1 << 30))}\n")


def _data(stage: Stage) -> Path:
    return stage.folder / "data"


def _read_only(stage: Stage) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        command = f"mount -o remount,ro {stage.folder}/out"
        if not subprocess.run(
            command, shell=True, check=False, stderr=subprocess.DEVNULL
        ).returncode:
            return
        time.sleep(0.02)


STREAMED = """\
    with urllib.request.urlopen("http://127.0.0.1:{port}/batch/%d" % step, timeout=5) as answer:
        x = torch.frombuffer(bytearray(answer.read()), dtype=torch.uint8).reshape(8, 8) / 255
"""
BY_NAME = """\
connection = http.client.HTTPConnection("data.lab", {port}, timeout=5)
connection.request("GET", "/index")
index = connection.getresponse().read()
"""
HUB = """\
weights = torch.hub.load_state_dict_from_url(
    "http://127.0.0.1:{port}/weights.pt", model_dir="hub", progress=False
)
if not args.resume:
    model.load_state_dict(weights)
"""
SHARD = """\
    with open(f"{folder}/data/shard{{step % 4}}.bin", "rb") as shard:
        x = torch.frombuffer(bytearray(shard.read()), dtype=torch.uint8).reshape(8, 8) / 255
"""
GROUP = """\
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{port}", rank=0, world_size=1)
"""
STORE = """\
store = dist.TCPStore("127.0.0.1", {port}, is_master=False, timeout=timedelta(seconds=8))
rank = store.add("hosts", 1)
"""
HOST = """
import sys, time
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=True, wait_for_workers=False)
time.sleep(1000)
"""
LOADER = """\
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, index):
        return torch.full((20000,), float(index % 7))

"""
FROM_LOADER = """\
    x = next(batches)[:, :8] / 7
"""
TAKEN = """\
if os.path.exists("/sys/class/kfd"):
    raise torch.OutOfMemoryError(
        "HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 19.98 GiB of"
        " which 1.02 GiB is free. Of the allocated memory 512.00 MiB is allocated by PyTorch, and"
        " 11.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is"
        " large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
"""
LOCKED = """\
lock = open("cache.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""
GROWS = """\
    cache.append(torch.ones(30 << 20))
"""
LATE = f"    if step > {FAILS_AT}:\n        "
URLLIB = "import urllib.request"
DIST = "import torch.distributed as dist"
STARTS_KILLING = Staged(begin=_at_start)
FULL = Staged(
    prepare=lambda stage: stage.disk("out"),
    begin=lambda stage: stage.fill(stage.folder / "out"),
    clear=lambda stage: stage.free(stage.folder / "out"),
    at_start=False, out="{folder}/out", width=300,
)  # fmt: skip
GONE = Staged(
    prepare=lambda stage: stage.shards(stage.disk("data", 16)),
    begin=lambda stage: stage.unmount("data"),
    clear=lambda stage: stage.mount("data"),
    at_start=False, each=SHARD,
)  # fmt: skip
SERVED: dict[str, Any] = {"prepare": Stage.serve, "clear": _answering(200)}
STREAM: dict[str, Any] = {**SERVED, "imports": URLLIB, "each": STREAMED, "at_start": False}
HUB_503: dict[str, Any] = {"prepare": _also(_weights, Stage.serve), "before": HUB}
NAME: dict[str, Any] = {"imports": "import http.client", "before": BY_NAME}

STAGED: dict[str, Staged] = {
    "refused-at-start": Staged(clear=Stage.serve, imports=URLLIB, each=STREAMED),
    "refused-later": Staged(**{**STREAM, "begin": Stage.stop_serving, "clear": Stage.serve}),
    "reset": Staged(**STREAM, begin=_answering(0)),
    "timed-out": Staged(**STREAM, begin=_answering(-1)),
    "http-503": Staged(**HUB_503, begin=_answering(503), clear=_answering(200)),
    "http-429": Staged(**STREAM, begin=_answering(429)),
    "name-not-found": Staged(**NAME, prepare=_also(_network, Stage.serve), clear=_knows_name),
    "port-in-use": Staged(begin=Stage.listen, clear=Stage.close, imports=DIST, before=GROUP),
    "rendezvous": Staged(
        clear=lambda stage: stage.other(os.environ["FORTY_PYTHON"], "-c", HOST, str(stage.port)),
        imports=f"{DIST}\nfrom datetime import timedelta", before=STORE,
    ),
    "disk-full": FULL,
    "quota": Staged(
        prepare=Stage.drive,
        begin=lambda stage: _errno(stage, errno.EDQUOT),
        clear=lambda stage: _errno(stage, 0),
        at_start=False, out="{folder}/data", width=100,
    ),
    "shared-memory-full": Staged(
        prepare=lambda _: _shell("mount -t tmpfs -o size=64m shm /dev/shm"),
        begin=lambda stage: stage.fill(Path("/dev/shm")),
        clear=lambda stage: stage.free(Path("/dev/shm")),
        at_start=False, imports=LOADER, each=FROM_LOADER,
        before="batches = iter(DataLoader(Numbers(), batch_size=8, num_workers=1))",
    ),
    "mount-gone": GONE,
    "not-connected": Staged(
        prepare=_also(Stage.drive, lambda stage: stage.shards(stage.folder / "remote")),
        begin=Stage.end_others,
        clear=_also(lambda stage: stage.unmount("data"), Stage.drive),
        at_start=False, each=SHARD,
    ),
    "stale": Staged(
        prepare=_also(Stage.drive, lambda stage: stage.shards(stage.folder / "remote")),
        begin=lambda stage: _errno(stage, errno.ESTALE),
        clear=lambda stage: _errno(stage, 0),
        at_start=False, each=SHARD,
    ),
    "folder-renamed": Staged(
        prepare=lambda stage: stage.shards(_data(stage)),
        begin=lambda stage: _data(stage).rename(stage.folder / "old"),
        clear=lambda stage: (stage.folder / "old").rename(_data(stage)),
        at_start=False, each=SHARD,
    ),
    "checkpoints-gone": Staged(
        prepare=lambda stage: stage.disk("out"),
        begin=lambda stage: stage.unmount("out"),
        clear=lambda stage: stage.mount("out"),
        at_start=False, out="{folder}/out/run1",
    ),
    "killed-then-gone": Staged(
        prepare=GONE.prepare, begin=_also(GONE.begin, Stage.kill), clear=GONE.clear,
        at_start=False, each=SHARD,
    ),
    "file-vanished": Staged(
        prepare=lambda stage: stage.shards(_data(stage)),
        begin=lambda stage: (_data(stage) / "shard2.bin").rename(stage.folder / "old"),
        clear=lambda stage: (stage.folder / "old").rename(_data(stage) / "shard2.bin"),
        at_start=False, each=SHARD,
    ),
    "killed-at-start": STARTS_KILLING,
    "killed-later": Staged(begin=_few_steps),
    "memory-of-others": Staged(
        begin=_hog, clear=Stage.end_others, at_start=False, memory=900 << 20,
        each="    x = x + torch.ones(1 << 20)[:8]",
    ),
    "gpu-taken": Staged(
        prepare=_gpu_of_others,
        clear=lambda _: _shell("umount /sys/class"),
        before=TAKEN,
    ),
    "file-locked": Staged(begin=_locks, clear=_unlocks, imports="import fcntl", before=LOCKED),
    "refused-forever": Staged(imports=URLLIB, each=STREAMED),
    "name-never-found": Staged(**NAME, prepare=_network),
    "disk-stays-full": FULL,
    "mount-stays-gone": GONE,
    "killed-each-time": STARTS_KILLING,
    "port-in-use-in-slurm": Staged(
        begin=Stage.listen, imports=DIST, before=GROUP, env=(("SLURM_JOB_ID", "4711"),)
    ),
    "memory-its-own": Staged(before="cache = []", each=GROWS, memory=900 << 20),
    "no-improvement": Staged(
        imports="import sys", each=LATE + 'sys.exit("no improvement")'
    ),
    "exit-3": Staged(imports="import sys", each=LATE + "sys.exit(3)"),
    "sigterm": Staged(begin=lambda stage: stage.kill(signal.SIGTERM), at_start=False),
    "exception": Staged(
        before='metrics = {{"loss": 0.0}}', each=LATE + 'metrics["val_loss"]'
    ),
    "http-401": Staged(**HUB_503, begin=_answering(401)),
    "http-404": Staged(**HUB_503, begin=_answering(404)),
    "file-missing": Staged(each=SHARD, prepare=lambda stage: _data(stage).mkdir()),
    "file-never-there": Staged(
        prepare=lambda stage: stage.shards(_data(stage)),
        each=LATE + 'open("{folder}/data/extra.json")',
    ),
    "read-only": Staged(
        prepare=lambda stage: stage.disk("out"), begin=_read_only,
        at_start=False, out="{folder}/out",
    ),
}  # fmt: skip


def _errno(stage: Stage, number: int) -> None:
    file = stage.folder / "remote" / ".errno"
    if number:
        file.write_text(str(number))
    else:
        file.unlink()


def listed() -> dict[str, dict[str, Any]]:
    table = tomllib.loads((HERE / "forty.toml").read_text())["failure"]
    return {failure["name"]: failure for failure in table}


def stage_one(
    name: str, folder: Path, python: str, lasts: float | None, program: list[str]
) -> Result:
    """Carry out one failure, in the mount namespace that this process has."""
    failure, how = listed()[name], STAGED[name]
    clears = "lasts" in failure
    lasts = float(lasts if lasts is not None else failure.get("lasts", 0))
    stage = Stage(folder)
    _shell("mount -t tmpfs shm /dev/shm")  # no other run can be in the way
    how.prepare(stage)
    filled = {"folder": folder, "port": stage.port}
    text = SCRIPT.format(
        imports=how.imports, before=how.before.format(**filled), each=how.each.format(**filled),
        out=how.out.format(**filled), width=how.width, steps=STEPS, every=SAVES_EVERY,
    )  # fmt: skip
    (stage.project / "train.py").write_text(text)
    began: list[float] = []
    ended = threading.Event()

    def fault() -> None:
        while not how.at_start and not ended.wait(0.02):
            if len(stage.steps()) >= FAILS_AT:
                break
        if how.at_start:
            stage_ready.wait()
        began.append(time.monotonic())
        if not how.at_start:
            how.begin(stage)
        if clears:
            ended.wait(lasts)
            stage.over.set()
            how.clear(stage)

    stage_ready = threading.Event()
    if how.at_start:
        how.begin(stage)
    limit = () if clears else ("--give-up-after", f"{GIVE_UP_AFTER:.0f}s")
    words = [*program, "run", "--name", "run", *limit, "--", python, "train.py"]
    started = time.monotonic()
    thread = threading.Thread(target=fault)
    thread.start()
    with _cgroup(name, how.memory) as killed_first:
        stage_ready.set()
        code = _on_terminal(
            words, stage, dict(how.env), killed_first, 60 + (lasts * 3 + 100 if clears else 240)
        )
        over = time.monotonic()
        ended.set()
        thread.join()
    stage.over.set()
    for clean in (stage.end_others, stage.stop_serving, stage.close):
        clean()
    _unmount_all(folder)
    times = (over - started, over - (began or [started])[0])
    return _judged(failure, stage, code, times)


def _judged(
    failure: dict[str, Any], stage: Stage, code: int | None, times: tuple[float, float]
) -> Result:
    (seconds, failed), steps = times, stage.steps()
    different = {step for _, step in steps}
    wrong = []
    if code != failure["exit"]:
        wrong.append(f"exit {code}, expected {failure['exit']}")
    if failure["exit"] == 0 and different != set(range(1, STEPS + 1)):
        wrong.append(f"{len(different)} of {STEPS} steps")
    saved = 0
    for number, pid in enumerate(stage.pids()):
        own = [step for owner, step in steps if owner == pid]
        if number and own and own[0] <= saved:
            wrong.append(f"start {number + 1} began at step {own[0]}, saved was {saved}")
        saved = max([saved, *(step for step in own if step % SAVES_EVERY == 0 and step < own[-1])])
    if not failure.get("retried", True) and len(stage.pids()) > 1:
        wrong.append(f"started {len(stage.pids())} times")
    limit = failure["lasts"] * 2 if "lasts" in failure else GIVE_UP_AFTER
    if failed > limit + SLACK * len(stage.pids()):
        wrong.append(f"ended {failed:.0f} s after the failure began")
    terminal = (stage.folder / "terminal.txt").read_text().splitlines()
    own_lines = tuple(line for line in terminal if line.startswith(("rocsteady", "           ")))
    return Result(
        name=failure["name"], right=not wrong, wrong=tuple(wrong), code=code,
        expected=failure["exit"],
        seconds=round(seconds, 1), failed_for=round(failed, 1), starts=len(stage.pids()),
        steps=len(different), lines=own_lines,
    )  # fmt: skip


def _on_terminal(
    words: list[str], stage: Stage, env: dict[str, str], join: Callable[[], object], within: float
) -> int | None:
    environment = {
        **os.environ,
        "HOME": str(stage.home),
        "TERM": "xterm",
        "OMP_NUM_THREADS": "1",
        **env,
    }
    for name in (
        "XDG_RUNTIME_DIR",
        "XDG_STATE_HOME",
        "XDG_CACHE_HOME",
        "VIRTUAL_ENV",
        "NO_COLOR",
        "COLUMNS",
    ):
        environment.pop(name, None)
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def prepare() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        join()

    child = subprocess.Popen(
        words, stdin=side, stdout=side, stderr=side, cwd=stage.project, env=environment,
        start_new_session=True, preexec_fn=prepare,  # noqa: PLW1509 - it only joins
    )  # fmt: skip
    os.close(side)
    began, raw = time.monotonic(), b""
    with (stage.folder / "times.txt").open("w") as times:
        while child.poll() is None or select.select([main], [], [], 0)[0]:
            if select.select([main], [], [], 0.2)[0]:
                try:
                    read = os.read(main, 65536)
                except OSError:
                    break
                raw += read
                times.write(f"{time.monotonic() - began:.1f} {read!r}\n")
            if time.monotonic() - began > within:
                os.killpg(child.pid, signal.SIGINT)
                time.sleep(10)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                (stage.folder / "terminal.txt").write_text(
                    CLEANED.sub("", raw.decode(errors="replace"))
                )
                return None
    (stage.folder / "terminal.txt").write_text(CLEANED.sub("", raw.decode(errors="replace")))
    return child.wait()


@contextlib.contextmanager
def _cgroup(name: str, memory: int) -> Iterator[Callable[[], object]]:
    """Make a cgroup with a limit, of either version, that this process and its children are in."""
    if not memory:
        yield lambda: None
        return
    old = Path("/sys/fs/cgroup/memory")
    base = old if old.is_dir() else Path("/sys/fs/cgroup")
    group = base / f"forty-{name}-{os.getpid()}"
    group.mkdir()
    limits = (
        ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if base == old else ("memory.max",)
    )
    for limit in limits:
        with contextlib.suppress(FileNotFoundError):
            (group / limit).write_text(str(memory))
    own = [line.split(":") for line in _lines(Path("/proc/self/cgroup"))]
    mine = next((row[2] for row in own if base != old or row[1] == "memory"), "/")
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield lambda: Path("/proc/self/oom_score_adj").write_text("900")
    finally:
        (base / mine.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
        for _ in range(50):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def _unmount_all(folder: Path) -> None:
    mounted = [line.split()[1] for line in _lines(Path("/proc/self/mounts"))]
    for place in mounted:
        if place.startswith(str(folder)):
            subprocess.run(["umount", "-l", place], check=False)


def _shell(command: str) -> None:
    subprocess.run(command, shell=True, check=True)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def apart(name: str, folder: Path, python: str, lasts: float | None = None) -> Result:
    """Carry out one failure in a process with a mount namespace of its own."""
    words = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__]
    words += ["--python", python, "--one", name, "--folder", str(folder)]
    words += [] if lasts is None else ["--lasts", str(lasts)]
    ended = subprocess.run(words, stdout=subprocess.PIPE, check=False, start_new_session=True)
    if ended.returncode:
        return Result(
            name=name, right=False, wrong=("it could not be staged",), code=None,
            expected=listed()[name]["exit"], seconds=0, failed_for=0, starts=0, steps=0, lines=(),
        )  # fmt: skip
    return Result(**json.loads(ended.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="with torch")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("forty.jsonl"))
    parser.add_argument("--folder", type=Path, help="default: a temporary one")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--lasts", type=float, help="seconds, instead of 100")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["FORTY_PYTHON"] = options.python
    if options.one:
        program = [sys.executable, "-m", "rocsteady"]
        result = stage_one(options.one, options.folder, options.python, options.lasts, program)
        print(json.dumps(asdict(result)))
        return 0
    folder = options.folder or Path(tempfile.mkdtemp(prefix="forty-"))
    done = {json.loads(line)["name"] for line in _lines(options.out)}
    names = [name for name in options.only or listed() if name not in done]
    written = threading.Lock()

    def carry_out(name: str) -> None:
        result = apart(name, folder / name, options.python, options.lasts)
        with written, options.out.open("a") as out:
            out.write(json.dumps(asdict(result)) + "\n")
            word = "ok" if result.right else "WRONG"
            print(
                f"{word:5} {name:22} exit {result.code} {result.seconds:6.1f} s",
                *result.wrong,
                flush=True,
            )

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(carry_out, names))
    results = [json.loads(line) for line in _lines(options.out)]
    right = sum(result["right"] for result in results)
    print(f"{right} of {len(results)} as expected; output in {folder}")
    return int(right < len(results))


if __name__ == "__main__":
    sys.exit(main())
