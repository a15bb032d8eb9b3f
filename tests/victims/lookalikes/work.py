"""Healthy runs that do more than train: afterwards, on a device, in ranks and in loader workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lookalikes.base import CONNECTION, TORCHRUN, Case, healthy

# Stands in for ROCm's runtime: functions with its names that block or spin until a time has come.
DEVICE = r"""
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
static double until;
static int how;
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static void *device(void *unused) {
    while (now() < until) usleep(1000);
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&mutex);
    return unused;
}
void launch(double seconds, int kind) {
    pthread_t thread;
    until = now() + seconds;
    how = kind;
    if (kind == 3) pthread_create(&thread, 0, device, 0);
}
long wait_relaxed(void) __asm__(
    "_ZN4rocr4core15InterruptSignal11WaitRelaxedE22hsa_signal_condition_tlm16hsa_wait_state_t");
long wait_relaxed(void) {
    double left = until - now();
    if (how == 0) while (now() < until) {}
    else if (how == 1) while (now() < until) sched_yield();
    else if (how == 2) while (now() < until) usleep(20);
    else if (how == 3) {
        pthread_mutex_lock(&mutex);
        while (now() < until) pthread_cond_wait(&done, &mutex);
        pthread_mutex_unlock(&mutex);
    } else if (left > 0) {
        struct itimerspec when = {{0, 0}, {(time_t)left, 1}};
        int timer = timerfd_create(CLOCK_MONOTONIC, 0);
        uint64_t fired;
        timerfd_settime(timer, 0, &when, 0);
        if (read(timer, &fired, sizeof fired) < 0) return -1;
        close(timer);
    }
    return 0;
}
long hsa_signal_wait_scacquire(void) { long r = wait_relaxed(); return r + (r > 1); }
long hsa_signal_wait_relaxed(void) { long r = wait_relaxed(); return r + (r > 1); }
int hipStreamSynchronize(void *s) { return (int)hsa_signal_wait_scacquire() + (s == &how); }
int hipDeviceSynchronize(void) { return hipStreamSynchronize(0); }
int hipEventSynchronize(void *e) { return (int)hsa_signal_wait_relaxed() + (e == &how); }
int hipMemcpyWithStream(void *a) { return (int)hsa_signal_wait_scacquire() + (a == &how); }
int ncclGroupEnd(void) { return hipStreamSynchronize(0); }
"""
DEVICE_SETUP = 'device = ctypes.{}("./libamdhip64.so")\ndevice.launch.argtypes = [ctypes.c_double, ctypes.c_int]'


def device_waits() -> Iterator[Case]:
    """Long waits for a device, such as an evaluation that synchronises at its end."""
    kinds = {
        "spin": ("CDLL", 0, "hipDeviceSynchronize()"),
        "spin-stream": ("CDLL", 0, "hipStreamSynchronize(None)"),
        "spin-holding-the-gil": ("PyDLL", 0, "hipEventSynchronize(None)"),
        "yield": ("CDLL", 1, "hipMemcpyWithStream(None)"),
        "short-sleeps": ("CDLL", 2, "hipDeviceSynchronize()"),
        "blocks": ("CDLL", 3, "hipStreamSynchronize(None)"),
        "blocks-holding-the-gil": ("PyDLL", 3, "hipDeviceSynchronize()"),
        "blocks-in-the-kernel": ("CDLL", 4, "hsa_signal_wait_scacquire()"),
        "collective": ("CDLL", 1, "ncclGroupEnd()"),
    }
    for name, (library, how, call) in kinds.items():
        yield Case(
            name=f"device-waits/{name}",
            setup=DEVICE_SETUP.format(library),
            body=f"device.launch(WAIT, {how})\ndevice.{call}",
            needs=("libamdhip64.so",),
            wait=60 if how else 50,
            short=40,
        )
    yield Case(
        name="device-waits/in-one-rank",
        setup=DEVICE_SETUP.format("CDLL"),
        body="device.launch(WAIT, 2)\ndevice.hipDeviceSynchronize()",
        needs=("libamdhip64.so",),
        place="rank",
        wait=60,
        short=40,
    )
    yield Case(
        name="device-waits/ten-in-a-row",
        setup=DEVICE_SETUP.format("CDLL"),
        body="for _ in range(10):\n    device.launch(WAIT / 10, 4)\n    device.hipDeviceSynchronize()",
        needs=("libamdhip64.so",),
        wait=60,
        short=40,
    )


def after_training() -> Iterator[Case]:
    """What a command does after its training is ordinary work."""
    trained = 'mark("trained")'

    def after(name: str, end: str, **more: Any) -> Case:  # noqa: ANN401 - fields of Case
        return Case(
            name=f"after-training/{name}",
            body="pass",
            end=end,
            **{"wait": 45, "short": 25, **more},
        )

    def bash(name: str, line: str, **more: Any) -> Case:  # noqa: ANN401 - fields of Case
        return after(name, trained, command=("bash", "-c", line, "PYTHON", "WAIT"), **more)

    yield bash("sleep-and-touch", '"$0" t.py && sleep $1 && touch finished')
    yield bash("exit-code", '"$0" t.py; sleep $1; touch finished; exit 5', code=5)
    yield bash("pause-between-trainings", '"$0" t.py && sleep $1 && "$0" t.py && touch finished')
    yield bash(
        "another-python",
        '"$0" t.py && "$0" -c "import threading; threading.Event().wait($1)" && touch finished',
    )
    yield after(
        "launcher",
        """
if len(sys.argv) == 1:
    threading.Event().wait(WAIT)
    subprocess.run([sys.executable, "t.py", "again"], check=True)
    mark("finished")
""",
    )
    upload = f"""
def upload():
    connection = {CONNECTION}
    {{how}}
    connection.close()
    mark("finished")


"""
    slow = (
        "for _ in range(int(WAIT)):\n        connection.sendall(bytes(2048))\n        time.sleep(1)"
    )
    waits = "connection.sendall(b'model')\n    connection.recv(1)"
    blocks = "connection.sendall(bytes(64_000_000))"
    reads = "connection = server()\nwhile connection.recv(65536):\n    pass"
    answers = "connection = server()\ntime.sleep(WAIT)\nconnection.send(b'1')\ntime.sleep(2)"
    late = "connection = server()\ntime.sleep(WAIT)\nwhile connection.recv(1 << 20):\n    pass"
    uploads = {
        "atexit-upload": (slow, "atexit.register(upload)", reads),
        "atexit-waits-for-answer": (waits, "atexit.register(upload)", answers),
        "atexit-blocked-send": (blocks, "atexit.register(upload)", late),
        "thread-upload": (slow, "threading.Thread(target=upload).start()", reads),
        "thread-waits-for-answer": (waits, "threading.Thread(target=upload).start()", answers),
    }
    for name, (how, start, outside) in uploads.items():
        yield after(name, upload.format(how=how) + start, outside=outside)
    later = {
        "evaluation-prints": "for index in range(int(WAIT)):\n    print(f'evaluated {index}', flush=True)\n"
        '    time.sleep(1)\nmark("finished")',
        "gzip": """
until, results = time.monotonic() + WAIT, os.urandom(1 << 20)
while time.monotonic() < until:
    with gzip.open("results.gz", "wb") as file:
        file.write(results)
mark("finished")
""",
        "gzip-child": """
subprocess.run(["bash", "-c", f"(sleep {WAIT}; echo 1) | gzip > results.gz"], check=True)
mark("finished")
""",
        "atexit-sleep": """
atexit.register(mark, "finished")
atexit.register(time.sleep, WAIT)
""",
        "atexit-queue-drained": """
jobs = queue.Queue()


def drain():
    while jobs.get():
        time.sleep(WAIT / 5)
        jobs.task_done()
    mark("finished")


threading.Thread(target=drain).start()
for _ in range(5):
    jobs.put(1)
jobs.put(0)
""",
        "executor-finishes": """
pool = ThreadPoolExecutor(1)
pool.submit(time.sleep, WAIT)
pool.submit(mark, "finished")
""",
        "child-finishes": """
def save():
    time.sleep(WAIT)
    mark("finished")


mp.get_context("fork").Process(target=save).start()
""",
        "exit-code-3": """
mark("finished")
time.sleep(WAIT)
sys.exit(3)
""",
    }
    for name, end in later.items():
        yield after(name, end, code=3 if name == "exit-code-3" else 0)


def ranks() -> Iterator[Case]:
    """One of two ranks takes longer than the other."""
    bodies = {
        "validates": "time.sleep(WAIT)",
        "waits-for-store": """
store = dist.TCPStore("127.0.0.1", 0, 1, True)


def put():
    time.sleep(WAIT)
    store.set("ready", "1")


threading.Thread(target=put).start()
dist.TCPStore("127.0.0.1", store.port, 1, False).wait(["ready"])
""",
        "saves-in-a-thread": """
saved = threading.Thread(target=time.sleep, args=(WAIT,))
saved.start()
saved.join()
""",
        "computes": "until = time.monotonic() + WAIT\nwhile time.monotonic() < until:\n    pass",
        "runs-a-program": "subprocess.run(sleeping(WAIT), check=True)",
    }
    yield from healthy("ranks", bodies, place="rank")
    yield Case(name="ranks/torchrun-sleep", body="time.sleep(WAIT)", place="rank", command=TORCHRUN)
    yield Case(
        name="ranks/new-group-with-a-child",
        setup="""
def other(where):
    dist.init_process_group("gloo", init_method=where, rank=1, world_size=2)
    time.sleep(WAIT)
    dist.all_reduce(torch.ones(1))
""",
        body="""
where = "file://" + os.path.abspath("store")
child = mp.get_context("fork").Process(target=other, args=(where,))
child.start()
dist.init_process_group("gloo", init_method=where, rank=0, world_size=2)
dist.all_reduce(torch.ones(1))
child.join()
dist.destroy_process_group()
""",
    )
    yield Case(
        name="ranks/torchrun-timed-wait",
        body="threading.Event().wait(WAIT)",
        place="rank",
        command=TORCHRUN,
    )
    yield Case(
        name="ranks/torchrun-after-training",
        body="pass",
        end='threading.Event().wait(WAIT)\nmark("finished")',
        place="rank",
        command=TORCHRUN,
    )
    yield Case(
        name="ranks/late-to-start",
        setup="""
def train_late(rank, where):
    time.sleep(WAIT * rank)
    train_rank(rank, where)


start = torch.multiprocessing.start_processes
torch.multiprocessing.start_processes = lambda _, *more, **named: start(train_late, *more, **named)
""",
        body="pass",
        place="rank",
    )


def loader_workers() -> Iterator[Case]:
    """Loader workers that take long over one sample."""
    bodies = {
        "sleeps": "time.sleep(WAIT)",
        "runs-a-program": "subprocess.run(sleeping(WAIT), check=True)",
        "computes": "until = time.monotonic() + WAIT\nwhile time.monotonic() < until:\n    pass",
        "thread-in-worker": """
thread = threading.Thread(target=time.sleep, args=(WAIT,))
thread.start()
thread.join()
""",
    }
    yield from healthy("loader-workers", bodies, place="worker")
    yield Case(
        name="loader-workers/sibling-holds-lock",
        setup="""
lock = mp.get_context("fork").Lock()


class Locked(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        with lock:
            time.sleep(WAIT / 2)
        return index
""",
        body="list(torch.utils.data.DataLoader(Locked(), num_workers=2))",
    )
    yield Case(
        name="loader-workers/slow-to-start",
        body="pass",
        place="worker",
        options=", worker_init_fn=lambda _: time.sleep(WAIT)",
    )
    yield Case(
        name="loader-workers/new-epoch-starts-slowly",
        body="""
for x in torch.utils.data.DataLoader(range(4), num_workers=2, worker_init_fn=lambda _: time.sleep(WAIT)):
    pass
""",
    )
    yield Case(
        name="loader-workers/persistent",
        body="threading.Event().wait(WAIT)",
        place="worker",
        options=", persistent_workers=True, prefetch_factor=1",
    )
    yield Case(
        name="loader-workers/slow-collate",
        setup="def slow(batch):\n    if os.path.exists('event') and not os.path.exists('slept'):\n"
        "        mark('slept')\n        time.sleep(WAIT)\n    return torch.stack(batch)",
        body="pass",
        place="worker",
        options=", collate_fn=slow",
    )


def compute() -> Iterator[Case]:
    """Long work without a step."""
    bodies = {
        "python": "until = time.monotonic() + WAIT\nwhile time.monotonic() < until:\n    sum(range(1000))",
        "hash": "until = time.monotonic() + WAIT\nwhile time.monotonic() < until:\n"
        "    hashlib.sha256(bytes(1 << 26)).digest()",
        "matrix": "until = time.monotonic() + WAIT\nx = torch.randn(1500, 1500)\n"
        "while time.monotonic() < until:\n    x @ x",
    }
    yield from healthy("compute", bodies, wait=25)
