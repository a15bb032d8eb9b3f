"""Real hangs: closed sets of waits that are found within seconds, and those that cannot be proven."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lookalikes.base import CONNECTION, TORCHRUN, Case, at, everywhere
from lookalikes.work import DEVICE_SETUP


def hung(family: str, bodies: dict[str, str], setup: str = "", **common: Any) -> Iterator[Case]:  # noqa: ANN401 - fields of Case
    """Give hangs that are found within seconds; ``*`` means everywhere."""
    for name, body in bodies.items():
        case = Case(
            **{
                "name": f"{family}/{name.rstrip('*')}",
                "body": body,
                "setup": setup,
                "expect": "hung",
                "wait": 0,
                "short": 0,
                **common,
            }
        )
        yield from everywhere(case) if name.endswith("*") else [case]


def slow(family: str, bodies: dict[str, str], **common: Any) -> Iterator[Case]:  # noqa: ANN401 - fields of Case
    """Give hangs that nobody can prove: ``--hang-after`` ends them."""
    arguments = ("--hang-after", "20s")
    yield from hung(family, bodies, **{"expect": "slow", "arguments": arguments, **common})


def self_deadlocks() -> Iterator[Case]:
    """One thread waits for itself."""
    bodies = {
        "lock*": "lock = threading.Lock()\nlock.acquire()\nlock.acquire()  # here",
        "with": "lock = threading.Lock()\nwith lock:\n    with lock:  # here\n        pass",
        "semaphore": "threading.Semaphore(0).acquire()  # here",
        "callback": """
lock = threading.Lock()


def log():
    with lock:  # here
        pass


with lock:
    log()
""",
        "pthread-mutex": """
mutex = ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)
libc.pthread_mutex_lock(mutex)  # here
""",
    }
    yield from hung("self-deadlock", bodies)


def lock_orders() -> Iterator[Case]:
    """Threads take locks in different orders."""
    setup = """
locks = [threading.Lock() for _ in range(3)]


def take(first, second):
    with locks[first]:
        time.sleep(0.5)
        with locks[second]:  # here
            pass
"""
    thread = "thread = threading.Thread(target=take, args=(1, 0), daemon=True)\nthread.start()\n"
    bodies = {
        "two*": thread + "take(0, 1)",
        "three": "threading.Thread(target=take, args=(1, 2), daemon=True).start()\n"
        "threading.Thread(target=take, args=(2, 0), daemon=True).start()\ntake(0, 1)",
        "joined": thread + "other = threading.Thread(target=take, args=(0, 1), daemon=True)\n"
        "other.start()\nthread.join()  # here",
        "by-future": "pool = ThreadPoolExecutor(2)\nfirst = pool.submit(take, 0, 1)\n"
        "pool.submit(take, 1, 0)\nfirst.result()  # here",
    }
    yield from hung("lock-order", bodies, setup)


def queues() -> Iterator[Case]:
    """Queues that nobody fills or empties."""
    bodies = {
        "never-filled*": "queue.Queue().get()  # here",
        "never-emptied": "full = queue.Queue(1)\nfull.put(1)\nfull.put(1)  # here",
        "never-done": "jobs = queue.Queue()\njobs.put(1)\njobs.join()  # here",
        "simple": "queue.SimpleQueue().get()  # here",
        "producer-died": """
batches = queue.Queue()
producer = threading.Thread(target=lambda: None)
producer.start()
batches.get()  # here
""",
        "mp-never-filled": "mp.Queue().get()  # here",
    }
    yield from hung("queues", bodies)


def joins() -> Iterator[Case]:
    """The training waits for a thread that waits for ever."""
    bodies = {
        "thread": "thread = threading.Thread(target=lambda: threading.Event().wait(), daemon=True)  # here\n"
        "thread.start()\nthread.join()  # here",
        "future": "ThreadPoolExecutor(1).submit(lambda: queue.Queue().get()).result()  # here",
        "pool-of-one": """
pool = ThreadPoolExecutor(1)


def outer():
    return pool.submit(int).result()  # here


pool.submit(outer).result()  # here
""",
        "chain": """
never = threading.Event()
first = threading.Thread(target=lambda: never.wait(), daemon=True)  # here
first.start()
second = threading.Thread(target=first.join, daemon=True)
second.start()
second.join()  # here
""",
    }
    yield from hung("joins", bodies)


def conditions() -> Iterator[Case]:
    """Nobody notifies."""
    bodies = {
        "condition": "condition = threading.Condition()\nwith condition:\n    condition.wait()  # here",
        "event": "threading.Event().wait()  # here",
        "barrier": "threading.Barrier(2).wait()  # here",
        "notified-too-early": """
condition = threading.Condition()
with condition:
    condition.notify()
with condition:
    condition.wait()  # here
""",
    }
    yield from hung("conditions", bodies)


def pipes() -> Iterator[Case]:
    """Pipes and sockets with both ends in the tree."""
    child = """
ours, theirs = mp.Pipe()


def answer():
    theirs.recv()  # here
    theirs.send(1)


mp.get_context("fork").Process(target=answer, daemon=True).start()
"""
    bodies = {
        "own-pipe": "reader, writer = os.pipe()\nos.read(reader, 1)  # here",
        "full-pipe": "reader, writer = os.pipe()\nos.write(writer, bytes(1 << 20))  # here",
        "socketpair": "ours, theirs = socket.socketpair()\nours.recv(1)  # here",
        "child-fills-pipe": """
child = subprocess.Popen([sys.executable, "-c", "print('x' * 1000000)"], stdout=subprocess.PIPE)
child.wait()  # here
""",
    }
    yield from hung("pipes", bodies)
    yield from hung("pipes", {"both-receive": "ours.recv()  # here"}, child)


def workers() -> Iterator[Case]:
    """Loader workers that wait for ever."""
    yield from hung(
        "loader-workers",
        {
            "semaphore-leaked": "semaphore.acquire()\nsemaphore.acquire()  # here",
            "condition": "with condition:\n    condition.wait()  # here",
        },
        "semaphore = mp.Semaphore(1)\ncondition = threading.Condition()",
        place="worker",
    )
    held = """
lock = threading.Lock()


def hold():
    with lock:
        time.sleep(4 if STEPS == 100 else 10)


threading.Thread(target=hold).start()
time.sleep(0.2)
"""
    yield from hung(
        "loader-workers", {"lock-held-at-fork": "lock.acquire()  # here"}, held, place="worker"
    )
    yield from hung(
        "loader-workers",
        {"gil-in-pause": "holds_gil.pause()  # here"},
        place="worker",
    )
    stop = "os.kill(os.getpid(), signal.SIGSTOP)"
    yield from hung("loader-workers", {"stopped": stop}, place="worker", expect="stopped")


def forks() -> Iterator[Case]:
    """A child was forked while a lock was held."""
    child = """
{take}
pid = os.fork()
if pid == 0:
    {wait}  # here
    os._exit(0)
os.waitpid(pid, 0)  # here
"""
    bodies = {
        "lock": child.format(take="lock = threading.Lock()\nlock.acquire()", wait="lock.acquire()"),
        "logging": child.format(
            take="handler = logging.StreamHandler()\nhandler.lock = threading.Lock()\n"
            "handler.lock.acquire()",
            wait='handler.handle(logging.makeLogRecord({"msg": "x"}))',
        ),
        "mp-process": "lock = threading.Lock()\nlock.acquire()\n"
        "child = mp.get_context('fork').Process(target=lambda: lock.acquire())  # here\n"
        "child.start()\nchild.join()  # here",
    }
    yield from hung("fork", bodies)


def processes() -> Iterator[Case]:
    """Locks, queues and barriers of `multiprocessing` among the run's own processes."""
    leak = """
lock = mp.get_context("fork").Lock()
child = mp.get_context("fork").Process(target=lock.acquire)
child.start()
child.join()
"""
    child = """
context = mp.get_context("fork")
lock, filled = context.Lock(), context.Queue()


def fill():
    with lock:  # here
        filled.put(1)


lock.acquire()
context.Process(target=fill, daemon=True).start()
"""
    yield from hung("processes", {"lock-leaked*": "lock.acquire()  # here"}, leak)
    yield from hung("processes", {"queue-behind-lock": "filled.get()  # here"}, child)
    bodies = {
        "barrier": "mp.Barrier(2).wait()  # here",
        "event": "mp.Event().wait()  # here",
        "condition": "condition = mp.Condition()\nwith condition:\n    condition.wait()  # here",
    }
    yield from hung("processes", bodies)
    pool = "with mp.get_context('fork').Pool(1) as pool:\n    pool.apply(os._exit, (1,))  # here"
    yield from slow("processes", {"pool-worker-died": pool})


def asyncios() -> Iterator[Case]:
    """Futures that nobody sets."""
    body = "async def wait():\n    {}\n\n\nasyncio.run(wait())  # here"
    bodies = {
        "future": body.format("await asyncio.get_running_loop().create_future()"),
        "queue": body.format("await asyncio.Queue().get()"),
        "thread": body.format("await asyncio.to_thread(lambda: threading.Event().wait())  # here"),
    }
    yield from hung("asyncio", bodies)


def collectives() -> Iterator[Case]:
    """One rank never comes to the collective."""
    bodies = {
        "missing-rank": "threading.Event().wait()  # here",
        "receives-from-nobody": "dist.recv(torch.zeros(4), src=0)  # here",
    }
    yield from hung("collectives", bodies, place="rank")
    locked = {"torchrun-locked": "lock = threading.Lock()\nlock.acquire()\nlock.acquire()  # here"}
    yield from hung("collectives", locked, place="rank", command=TORCHRUN)
    store = "dist.TCPStore('127.0.0.1', 0, 1, True).wait(['never'])  # here"
    yield from slow("collectives", {"store-key-never-set": store}, place="rank")


def gil() -> Iterator[Case]:
    """C code waits for ever and holds the GIL."""
    mutex = "mutex = ctypes.create_string_buffer(64)\n"
    bodies = {
        "mutex": mutex + "holds_gil.pthread_mutex_lock(mutex)\n"
        "holds_gil.pthread_mutex_lock(mutex)  # here",
        "semaphore": mutex + "libc.sem_init(mutex, 0, 0)\nholds_gil.sem_wait(mutex)  # here",
        "thread-holds-it": mutex + "libc.sem_init(mutex, 0, 0)\n"
        "thread = threading.Thread(target=lambda: holds_gil.sem_wait(mutex))  # here\n"
        "thread.start()\nthread.join()  # here",
        "in-backward": mutex
        + """
class Stuck(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        libc.sem_init(mutex, 0, 0)
        holds_gil.sem_wait(mutex)  # here
        return gradient


Stuck.apply(model(torch.randn(8, 16))).sum().backward()  # here
""",
    }
    yield from hung("gil", bodies)


def devices() -> Iterator[Case]:
    """A device never finishes, and nothing else says so."""
    for name, how in {"spins": 0, "blocks": 3, "blocks-in-the-kernel": 4}.items():
        body = f"device.launch(1e8, {how})\ndevice.hipDeviceSynchronize()  # here"
        yield from slow(
            "devices", {name: body}, setup=DEVICE_SETUP.format("CDLL"), needs=("libamdhip64.so",)
        )


def unprovable() -> Iterator[Case]:
    """Somebody could still end these, for all that can be seen from here."""
    stuck = "lock = threading.Lock()\nlock.acquire()\nlock.acquire()  # here"
    bodies = {
        "polls": "while not os.path.exists('never'):\n    time.sleep(0.1)  # here",
        "polls-with-event": "while not os.path.exists('never'):\n    threading.Event().wait(1)  # here",
        "endless-loop": "while True:\n    pass  # here",
        "far-timeout": "threading.Event().wait(1e6)  # here",
        "accepts": "listener = socket.socket()\nlistener.bind(('127.0.0.1', 0))\nlistener.listen()\n"
        "listener.accept()  # here",
        "usr1-handler": "signal.signal(signal.SIGUSR1, print)\n" + stuck,
        "alarm-handler": "signal.signal(signal.SIGALRM, print)\n" + stuck,
        "beside-a-printer": """
def beat():
    for beats in range(10000):
        print(f"beat {beats}", flush=True)
        time.sleep(1)


threading.Thread(target=beat, daemon=True).start()
"""
        + stuck,
    }
    yield from slow("unprovable", bodies)
    yield from slow(
        "unprovable",
        {"silent-server": f"{CONNECTION}.recv(1)  # here"},
        outside="connection = server()\ntime.sleep(3600)",
    )
    holder = "address = mapped('lock.mdb')\n"
    yield from slow(
        "unprovable",
        {"foreign-mutex": holder + "libc.pthread_mutex_lock(address)  # here"},
        outside=holder + "shared_mutex(address)\nlibc.pthread_mutex_lock(address)\nready()\n"
        "time.sleep(3600)",
    )
    alarm = Case(
        name="unprovable/timer-far-away",
        body="signal.signal(signal.SIGALRM, print)\nsignal.alarm(86400)\n" + stuck,
        expect="slow",
        wait=0,
        short=0,
        arguments=("--hang-after", "20s"),
    )
    yield from at(alarm, "main", "worker")
