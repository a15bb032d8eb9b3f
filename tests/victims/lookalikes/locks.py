"""Healthy waits for locks and memory that somebody else holds: they must be left alone."""

from __future__ import annotations

from collections.abc import Iterator

from lookalikes.base import CONNECTION, Case, at, everywhere, healthy

HELD = """
{take}
ready()
until_event()
time.sleep(WAIT)
{release}
"""


def foreign_locks() -> Iterator[Case]:
    """Locks that a process outside of the tree holds for a while."""
    mutex = (
        'address = mapped("lock.mdb")\nshared_mutex(address, {})\nlibc.pthread_mutex_lock(address)'
    )
    release = "libc.pthread_mutex_unlock(address)"
    lock = 'address = mapped("lock.mdb")\nlibc.pthread_mutex_lock(address)\n' + release
    yield from everywhere(
        Case(
            name="foreign-locks/mapped-mutex",
            body=lock,
            outside=HELD.format(take=mutex.format(0), release=release),
        )
    )
    names = 'name = b"/" + os.path.basename(os.getcwd()).encode()\n'
    semaphore = "libc.sem_open.restype = ctypes.c_void_p\n" + names
    opened = "semaphore = ctypes.c_void_p(libc.sem_open(name, os.O_CREAT, 0o600, 0))"
    system = "key = os.stat('.').st_ino & 0x7FFFFFFF\nnumber = libc.semget(key, 1, 0o1600)\n"
    futex = 'address = mapped("flag")\n'
    locks = {
        "robust-mutex": (lock, mutex.format(1), release),
        "flock*": (
            'file = open("lock", "a")\nfcntl.flock(file, fcntl.LOCK_EX)',
            'file = open("lock", "a")\nfcntl.flock(file, fcntl.LOCK_EX)',
            "file.close()",
        ),
        "lockf": (
            'file = open("lock", "a")\nfcntl.lockf(file, fcntl.LOCK_EX)',
            'file = open("lock", "a")\nfcntl.lockf(file, fcntl.LOCK_EX)',
            "file.close()",
        ),
        "named-semaphore*": (
            f"{semaphore}{opened}\nlibc.sem_wait(semaphore)",
            f"{semaphore}{opened}",
            "libc.sem_post(semaphore)\ntime.sleep(1)\nlibc.sem_unlink(name)",
        ),
        "system-v-semaphore": (
            f"{system}libc.semop(number, (ctypes.c_short * 3)(0, -1, 0), 1)",
            system,
            "libc.semop(number, (ctypes.c_short * 3)(0, 1, 0), 1)\nlibc.semctl(number, 0, 0)",
        ),
        "rwlock": (
            futex + "libc.pthread_rwlock_rdlock(address)",
            futex + "kind = ctypes.create_string_buffer(64)\n"
            "libc.pthread_rwlockattr_init(kind)\nlibc.pthread_rwlockattr_setpshared(kind, 1)\n"
            "libc.pthread_rwlock_init(address, kind)\nlibc.pthread_rwlock_wrlock(address)",
            "libc.pthread_rwlock_unlock(address)",
        ),
        "thread-takes-it": (
            f"""
def take():
    {lock.replace(chr(10), chr(10) + "    ")}


thread = threading.Thread(target=take)
thread.start()
thread.join()
""",
            mutex.format(0),
            release,
        ),
    }
    for name, (body, take, let_go) in locks.items():
        outside = HELD.format(take=take, release=let_go)
        yield from healthy("foreign-locks", {name: body}, outside=outside)


def shared_memory() -> Iterator[Case]:
    """Memory that another process changes."""
    shared = 'address = mapped("flag")\n'
    wait = "libc.syscall(FUTEX, address, 0, 0, None, None, 0)"
    wake = "ctypes.c_int.from_address(address.value).value = 1\nlibc.syscall(FUTEX, address, 1, 9, None)"
    yield from at(
        Case(
            name="shared-memory/futex",
            body=shared + wait,
            outside=HELD.format(take=shared, release=wake),
        ),
        "main",
        "worker",
    )
    yield Case(
        name="shared-memory/futex-in-thread",
        body=f"""
{shared}
thread = threading.Thread(target=lambda: {wait})
thread.start()
thread.join()
""",
        outside=HELD.format(take=shared, release=wake),
    )
    yield Case(
        name="shared-memory/flag-polled",
        body=shared + "while not ctypes.c_int.from_address(address.value).value:\n"
        "    time.sleep(0.01)",
        outside=HELD.format(take=shared, release=wake),
    )
    yield Case(
        name="shared-memory/tensor-set-by-child",
        setup="""
flag = torch.zeros(1).share_memory_()


def set_flag():
    until_event()
    time.sleep(WAIT)
    flag.fill_(1)


mp.get_context("fork").Process(target=set_flag).start()
""",
        body="while not flag.item():\n    threading.Event().wait(0.2)",
    )


HOLDING = """
lock, held = threading.{kind}(), threading.Event()


def hold():
    {take}
    held.set()
    {work}
    {release}


threading.Thread(target=hold).start()
held.wait()
lock.acquire()
lock.release()
"""
PLAIN = {"kind": "Lock", "take": "lock.acquire()", "release": "lock.release()"}
COUNT = "until = time.monotonic() + WAIT\n    while time.monotonic() < until:\n        pass"
READS = f"connection = {CONNECTION}\n    connection.recv(1)"
HOLDERS = {
    "thread-acquire*": HOLDING.format(work="time.sleep(WAIT)", **PLAIN),
    "thread-with": """
lock, held = threading.Lock(), threading.Event()


def hold():
    with lock:
        held.set()
        time.sleep(WAIT)


threading.Thread(target=hold).start()
held.wait()
with lock:
    pass
""",
    "rlock": HOLDING.format(work="time.sleep(WAIT)", **{**PLAIN, "kind": "RLock"}),
    "computes": HOLDING.format(work=COUNT, **PLAIN),
    "runs-a-program": HOLDING.format(work="subprocess.run(sleeping(WAIT))", **PLAIN),
    "sleeps-in-c": HOLDING.format(work="libc.usleep(int(WAIT * 1e6))", **PLAIN),
    "holds-the-gil": HOLDING.format(work="holds_gil.usleep(int(WAIT * 1e6))", **PLAIN),
    "waits-with-timeout": HOLDING.format(work="threading.Event().wait(WAIT)", **PLAIN),
    "future": """
with ThreadPoolExecutor(1) as pool:
    pool.submit(time.sleep, WAIT).result()
""",
    "notified-late": """
condition = threading.Condition()


def notify():
    time.sleep(WAIT)
    with condition:
        condition.notify()


with condition:
    threading.Thread(target=notify).start()
    condition.wait()
""",
    "queue-filled-late": """
filled = queue.Queue()


def fill():
    time.sleep(WAIT)
    filled.put(1)


threading.Thread(target=fill).start()
filled.get()
""",
    "chain-of-three": """
locks = [threading.Lock() for _ in range(3)]


def hold(mine, next_one):
    with mine:
        time.sleep(0.5)
        if next_one:
            next_one.acquire()
            next_one.release()
        else:
            time.sleep(WAIT)


for mine, next_one in zip(locks, [*locks[1:], None]):
    threading.Thread(target=hold, args=(mine, next_one)).start()
time.sleep(0.2)
locks[0].acquire()
""",
}


def sleeping_holders() -> Iterator[Case]:
    """A thread or process of the tree holds what is waited for, and sleeps, reads or computes."""
    yield from healthy("sleeping-holders", HOLDERS)
    reading = "connection = server()\nuntil_event()\ntime.sleep(WAIT)\nconnection.send(b'1')"
    yield Case(
        name="sleeping-holders/reads", body=HOLDING.format(work=READS, **PLAIN), outside=reading
    )
    children = """
{made}


def hold():
    {take}
    until_event()
    {work}
    {give}


mp.get_context("fork").Process(target=hold).start()
time.sleep(0.5)
"""
    made = {
        "mp-lock*": ("lock = mp.Lock()", "lock.acquire()", "lock.release()", "lock.acquire()"),
        "mp-event": ("event_ = mp.Event()", "pass", "event_.set()", "event_.wait()"),
        "mp-queue": ("filled = mp.Queue()", "pass", "filled.put(1)", "filled.get()"),
        "mp-queue-read-late": (  # the thread of the queue cannot write until the child reads
            "filled = mp.Queue()",
            "pass",
            "filled.get()",
            "filled.put(bytes(1 << 20))\nfilled.close()\nfilled.join_thread()",
        ),
        "mp-condition": (
            "condition = mp.Condition()",
            "pass",
            "with condition:\n        condition.notify()",
            "with condition:\n    condition.wait()",
        ),
    }
    for name, (make, take, give, body) in made.items():
        setup = children.format(made=make, take=take, give=give, work="time.sleep(WAIT)")
        yield from healthy("sleeping-holders", {name: body}, setup=setup)
