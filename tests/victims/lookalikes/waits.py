"""Healthy waits that end by themselves or by somebody outside: they must be left alone."""

from __future__ import annotations

from collections.abc import Iterator

from lookalikes.base import Case, everywhere, healthy

TIMEOUTS = {
    "event*": "threading.Event().wait(WAIT)",
    "queue*": """
with contextlib.suppress(queue.Empty):
    queue.Queue().get(timeout=WAIT)
""",
    "select*": """
reader, writer = os.pipe()
select.select([reader], [], [], WAIT)
""",
    "connection-poll*": """
ours, theirs = mp.Pipe()
ours.poll(WAIT)
""",
    "lock": """
lock = threading.Lock()
lock.acquire()
lock.acquire(timeout=WAIT)
""",
    "condition": """
condition = threading.Condition()
with condition:
    condition.wait(WAIT)
""",
    "semaphore": "threading.Semaphore(0).acquire(timeout=WAIT)",
    "barrier": """
with contextlib.suppress(threading.BrokenBarrierError):
    threading.Barrier(2).wait(WAIT)
""",
    "join": """
stuck = threading.Thread(target=threading.Event().wait, daemon=True)
stuck.start()
stuck.join(WAIT)
""",
    "future": """
pool = ThreadPoolExecutor(1)
never = threading.Event()
with contextlib.suppress(TimeoutError, __import__("concurrent.futures").futures.TimeoutError):
    pool.submit(never.wait).result(timeout=WAIT)
never.set()
""",
    "thread-that-times-out": """
thread = threading.Thread(target=threading.Event().wait, args=(WAIT,))
thread.start()
thread.join()
""",
    "three-in-a-row": """
for _ in range(3):
    threading.Event().wait(WAIT / 3)
""",
    "mp-queue": """
with contextlib.suppress(queue.Empty):
    mp.Queue().get(timeout=WAIT)
""",
    "mp-event": "mp.Event().wait(WAIT)",
    "mp-semaphore": "mp.Semaphore(0).acquire(timeout=WAIT)",
    "poll": """
reader, writer = os.pipe()
poll = select.poll()
poll.register(reader)
poll.poll(WAIT * 1000)
""",
    "epoll": """
reader, writer = os.pipe()
epoll = select.epoll()
epoll.register(reader)
epoll.poll(WAIT)
""",
    "ppoll": "libc.ppoll(None, 0, ctypes.byref(Span(WAIT)), None)",
    "sem-timedwait": """
semaphore = ctypes.create_string_buffer(64)
libc.sem_init(semaphore, 0, 0)
libc.sem_timedwait(semaphore, ctypes.byref(Span(time.time() + WAIT)))
""",
    "futex-relative": """
word = ctypes.c_int(0)
libc.syscall(FUTEX, ctypes.byref(word), 0, 0, ctypes.byref(Span(WAIT)), None, 0)
""",
    "futex-absolute": """
word, until = ctypes.c_int(0), Span(time.monotonic() + WAIT)
libc.syscall(FUTEX, ctypes.byref(word), 9, 0, ctypes.byref(until), None, -1)
""",
    "socket-timeout": """
ours, theirs = socket.socketpair()
ours.settimeout(WAIT)
with contextlib.suppress(TimeoutError):
    ours.recv(1)
""",
    "socket-own-timeout": """
ours, theirs = socket.socketpair()
ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(WAIT), 0))
with contextlib.suppress(BlockingIOError):
    ours.recv(1)
""",
    "sleep": "time.sleep(WAIT)",
}

LOCKED_DATASET = """
class Stuck(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
"""


def timeouts() -> Iterator[Case]:
    """Waits with a finite timeout, for all of its length."""
    yield from healthy("timeouts", TIMEOUTS)
    yield Case(
        name="timeouts/loader-timeout",
        setup=LOCKED_DATASET,
        body="""
try:
    next(iter(torch.utils.data.DataLoader(Stuck(), num_workers=1, timeout=WAIT)))
except RuntimeError as error:
    print(error)
""",
    )
    yield Case(
        name="timeouts/loader-timeout-polled",
        setup=LOCKED_DATASET,
        body="""
batches = iter(torch.utils.data.DataLoader(Stuck(), num_workers=1, timeout=5))
ends = time.monotonic() + WAIT
while time.monotonic() < ends:
    with contextlib.suppress(RuntimeError):
        next(batches)
""",
    )


HANDLER = """
class Freed(Exception):
    pass


def free(*_):
    raise Freed
"""
STUCK = """
lock = threading.Lock()
lock.acquire()
with contextlib.suppress(Freed):
    lock.acquire()
"""


TIMERS = {
    "itimer": "signal.signal(signal.SIGALRM, free)\nsignal.setitimer(signal.ITIMER_REAL, WAIT)"
    + STUCK,
    "alarm-breaks-queue": """
signal.signal(signal.SIGALRM, free)
signal.alarm(int(WAIT))
with contextlib.suppress(Freed):
    queue.Queue().get()
""",
    "posix-timer*": """
signal.signal(signal.SIGRTMIN, free)
how, timer = (ctypes.c_int * 16)(0, 0, signal.SIGRTMIN, 0), ctypes.c_void_p()
libc.timer_create(1, how, ctypes.byref(timer))
libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, int(WAIT), 0), None)
"""
    + STUCK,
    "thread-timer*": """
freed = threading.Event()
threading.Timer(WAIT, freed.set).start()
freed.wait()
""",
    "timerfd": """
descriptor = libc.timerfd_create(1, 0)
libc.timerfd_settime(descriptor, 0, (ctypes.c_long * 4)(0, 0, int(WAIT), 0), None)
os.read(descriptor, 8)
""",
    "timerfd-epoll": """
descriptor = libc.timerfd_create(1, 0)
libc.timerfd_settime(descriptor, 0, (ctypes.c_long * 4)(0, 0, int(WAIT), 0), None)
epoll = select.epoll()
epoll.register(descriptor)
epoll.poll()
""",
    "sigtimedwait": "signal.sigtimedwait([signal.SIGUSR2], WAIT)",
    "scheduler": """
import sched
scheduler = sched.scheduler()
scheduler.enter(WAIT, 1, print, ("scheduled",))
scheduler.run()
""",
}


def timers() -> Iterator[Case]:
    """A timer or a signal frees a wait that nothing else would."""
    yield from everywhere(
        Case(
            name="timers/alarm",
            setup=HANDLER,
            body="signal.signal(signal.SIGALRM, free)\nsignal.alarm(int(WAIT))" + STUCK,
        )
    )
    yield from healthy("timers", TIMERS, setup=HANDLER)
    outside = """
ready()
until_event()
time.sleep(WAIT)
os.kill(int(open("pid").read()), signal.SIGUSR1)
"""
    told = 'with open("pid", "w") as file:\n    file.write(str(os.getpid()))\n'
    bodies = {
        "usr1-breaks-lock": told + "signal.signal(signal.SIGUSR1, free)" + STUCK,
        "usr1-sigwait": """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
"""
        + told
        + "signal.sigwait([signal.SIGUSR1])",
        "usr1-pause": told + "signal.signal(signal.SIGUSR1, print)\nsignal.pause()",
    }
    yield from healthy("timers", bodies, setup=HANDLER, outside=outside)


POLLING = {
    "file-with-event": """
never = threading.Event()
while not os.path.exists("there"):
    never.wait(0.5)
""",
    "file-with-sleep": """
while not os.path.exists("there"):
    time.sleep(1)
""",
    "file-with-queue": """
empty = queue.Queue()
while not os.path.exists("there"):
    with contextlib.suppress(queue.Empty):
        empty.get(timeout=1)
""",
    "file-with-select": """
reader, writer = os.pipe()
while not os.path.exists("there"):
    select.select([reader], [], [], 1)
""",
    "file-with-lock": """
lock = threading.Lock()
lock.acquire()
while not os.path.exists("there"):
    lock.acquire(timeout=2)
""",
    "thread-polls*": """
there = threading.Event()


def look():
    never = threading.Event()
    while not os.path.exists("there"):
        never.wait(1)
    there.set()


threading.Thread(target=look).start()
there.wait()
""",
    "mp-condition": """
condition = mp.Condition()
with condition:
    while not os.path.exists("there"):
        condition.wait(1)
""",
}


def polling() -> Iterator[Case]:
    """Polling loops of the script's own: what they look for, only they know."""
    outside = 'ready()\nuntil_event()\ntime.sleep(WAIT)\nmark("there")'
    yield from healthy("polling", POLLING, outside=outside)
    yield from healthy(
        "polling",
        {
            "child-with-wnohang": """
child = subprocess.Popen(sleeping(WAIT))
while child.poll() is None:
    threading.Event().wait(0.2)
"""
        },
    )
