"""What the scripts of the third corpus share: a small training, futexes, and a hand from outside.

`outside(after, action, ...)` asks for `outside.py ACTION ...` to be started by somebody else, in so
many seconds. Under `run_all.py` that is the driver, so the process is no child of the run, has none
of its variables, and does not exist before. Run plainly, a shell of its own session does it.
"""

import ctypes
import json
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
WAIT = float(os.environ.get("THIRD_WAIT", "35"))
BEFORE, AFTER = 60, 20
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.shmat.restype = ctypes.c_void_p
libc.sem_open.restype = ctypes.c_void_p


def outside(after, action, *args):
    command = [action, *map(str, args)]
    box = os.environ.get("THIRD_OUTSIDE")
    if box:
        name = f"{os.getpid()}-{time.monotonic_ns()}"
        part = Path(box, name + ".part")
        part.write_text(json.dumps({"after": after, "command": command, "cwd": os.getcwd()}))
        part.rename(Path(box, name + ".json"))
        return
    line = 'sleep "$0"; exec "$@"'
    subprocess.Popen(
        ["sh", "-c", line, str(after), sys.executable, str(HERE / "outside.py"), *command],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"]},
    )


def wait_file(path, limit=60):
    end = time.monotonic() + limit
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise SystemExit(f"nobody wrote {path}")
        time.sleep(0.05)
    return Path(path).read_text()


def say(path, text="ready"):
    part = f"{path}.part{os.getpid()}"
    Path(part).write_text(str(text))
    os.rename(part, path)


def check(result):
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


# Futexes that are shared between processes. A word is 0 until somebody sets it to 1 and wakes.


def map_file(path_or_fd, size=4096):
    fd = path_or_fd if isinstance(path_or_fd, int) else os.open(path_or_fd, os.O_RDWR | os.O_CREAT, 0o600)
    if os.fstat(fd).st_size < size:
        os.ftruncate(fd, size)
    memory = mmap.mmap(fd, size)
    if not isinstance(path_or_fd, int):
        os.close(fd)
    return memory


def address(memory, offset=0):
    if isinstance(memory, int):
        return memory + offset
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)) + offset


def word(memory, offset=0):
    return ctypes.c_uint32.from_address(address(memory, offset))


def futex(where, op, value, timeout=None):
    return libc.syscall(202, ctypes.c_void_p(where), op, value, timeout, None, 0)


def futex_wait(memory, offset=0):
    """Like a careful C program: an error that is not a change of the word ends it."""
    flag = word(memory, offset)
    while flag.value == 0:
        if futex(address(memory, offset), 0, 0) == -1 and ctypes.get_errno() not in (4, 11):
            check(-1)


def futex_set(memory, offset=0):
    word(memory, offset).value = 1
    futex(address(memory, offset), 1, 2**30)


def shared_mutex(memory, offset=64, *, robust=False):
    kind = ctypes.create_string_buffer(64)
    libc.pthread_mutexattr_init(kind)
    libc.pthread_mutexattr_setpshared(kind, 1)
    if robust:
        libc.pthread_mutexattr_setrobust(kind, 1)
    libc.pthread_mutex_init(ctypes.c_void_p(address(memory, offset)), kind)


def mutex_lock(memory, offset=64):
    return libc.pthread_mutex_lock(ctypes.c_void_p(address(memory, offset)))


def mutex_unlock(memory, offset=64):
    return libc.pthread_mutex_unlock(ctypes.c_void_p(address(memory, offset)))


# The training.


class Training:
    def __init__(self, seed=0):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.torch = torch
        self.model = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.count = 0

    def batch(self):
        inputs = self.torch.randn(64, 64)
        return inputs, inputs.sum(1, keepdim=True)

    def step(self, batch=None, pause=0.02):
        inputs, targets = batch if batch is not None else self.batch()
        self.optimizer.zero_grad()
        loss = self.torch.nn.functional.mse_loss(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        time.sleep(pause)
        self.done(loss.item())

    def done(self, loss):
        self.count += 1
        note_step(self.count)
        if self.count % 10 == 0:
            print(f"step {self.count} loss {loss:.4f}", flush=True)

    def steps(self, number, pause=0.02):
        for _ in range(number):
            self.step(pause=pause)


def note_step(count):
    """Where the driver reads when the last step was made."""
    folder = os.environ.get("THIRD_STEPS")
    if folder:
        fd = os.open(f"{folder}/{os.getpid()}", os.O_WRONLY | os.O_CREAT)
        os.pwrite(fd, f"{time.time():.3f} {count:08d}".encode(), 0)
        os.close(fd)


CASES = {}


def case(covers, *, own=False, steps=BEFORE + AFTER, **extra):
    """Register a script: its name is the function's; `own` means that it trains by itself."""

    def register(function):
        CASES[function.__name__] = dict(covers=covers, own=own, steps=steps, run=function, **extra)
        return function

    return register


def main():
    if sys.argv[1:] in ([], ["--list"]):
        for name, one in CASES.items():
            print(f"{name:34} {one['steps']:5}  {one['covers']}")
        return
    name = sys.argv[1]
    one = CASES[name]
    if one["own"]:
        one["run"]()
    else:
        training = Training()
        training.steps(BEFORE)
        one["run"]()
        training.steps(AFTER)
    print(f"done {name}", flush=True)
