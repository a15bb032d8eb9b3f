"""Real hangs: `hangs.py NAME`, `hangs.py --list`. The line is marked with `# HANGS HERE: NAME`.

kind "closed": nothing outside can end it, so it must be found within 12 s of the last step;
"exit": the same, at the end of the script (the documentation says 20 s, so 30 s here); "start": the
same before the first step (100 s, so 120 s here); "open": only a person can tell, so the program may
wait. Several marks mean that each of these lines is a right answer.
"""

import asyncio
import atexit
import concurrent.futures
import ctypes
import fcntl
import multiprocessing as mp
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

from third_common import AFTER, BEFORE, Training, case, libc, main

MORE = BEFORE + AFTER


def hang(covers, kind="closed", **options):
    return case(covers, kind=kind, **options)


# Locks of one process


@hang("a lock that is not reentrant, taken twice")
def lock_twice():
    lock = threading.Lock()
    with lock:
        lock.acquire()  # HANGS HERE: lock_twice


@hang("two threads take two locks in opposite order")
def lock_order():
    first, second = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def other():
        with second:
            both.wait()
            first.acquire()  # HANGS HERE: lock_order

    threading.Thread(target=other, daemon=True).start()
    with first:
        both.wait()
        second.acquire()  # HANGS HERE: lock_order


@hang("a thread ended without releasing its lock")
def lock_of_dead_thread():
    lock = threading.Lock()
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    lock.acquire()  # HANGS HERE: lock_of_dead_thread


@hang("a semaphore that nobody releases, next to finished threads")
def semaphore():
    slots = threading.Semaphore(2)
    for _ in range(2):
        threading.Thread(target=slots.acquire).start()
    time.sleep(0.1)
    slots.acquire()  # HANGS HERE: semaphore


@hang("Condition.wait that nobody notifies: the notification came before")
def condition_lost():
    condition = threading.Condition()

    def produce():
        with condition:
            condition.notify()

    thread = threading.Thread(target=produce)
    thread.start()
    thread.join()
    with condition:
        condition.wait()  # HANGS HERE: condition_lost


@hang("an Event that nobody sets")
def event():
    threading.Event().wait()  # HANGS HERE: event


@hang("a Barrier for two, reached by one")
def barrier():
    threading.Barrier(2).wait()  # HANGS HERE: barrier


@hang("join of a thread that waits for a lock of ours")
def join_holding_lock():
    lock = threading.Lock()

    def save():
        with lock:  # HANGS HERE: join_holding_lock
            Path("model").write_text("x")

    with lock:
        thread = threading.Thread(target=save)
        thread.start()
        thread.join()


@hang("queue.get; the feeder thread died with an exception")
def queue_dead_feeder():
    items = queue.Queue()

    def feed():
        items.put(1)
        raise ValueError("bad record")

    threading.Thread(target=feed).start()
    items.get()
    items.get()  # HANGS HERE: queue_dead_feeder


@hang("queue.put into a full queue; the consumer is gone")
def queue_full():
    items = queue.Queue(1)
    items.put(1)
    items.put(2)  # HANGS HERE: queue_full


@hang("queue.join; the consumer forgot task_done")
def queue_join():
    items = queue.Queue()
    items.put(1)
    threading.Thread(target=items.get).start()
    items.join()  # HANGS HERE: queue_join


@hang("two threads wait for each other's queues")
def queue_crossed():
    requests, answers = queue.Queue(), queue.Queue()

    def serve():
        while True:
            answers.put(requests.get())  # HANGS HERE: queue_crossed

    threading.Thread(target=serve, daemon=True).start()
    answers.get()  # HANGS HERE: queue_crossed


@hang("a Future that nobody sets")
def future():
    concurrent.futures.Future().result()  # HANGS HERE: future


@hang("an executor with one thread: a task waits for a task behind it")
def executor_inner_task():
    pool = concurrent.futures.ThreadPoolExecutor(1)

    def outer():
        return pool.submit(int).result()  # HANGS HERE: executor_inner_task

    pool.submit(outer).result()


@hang("a finalizer takes the lock that is held while the object dies")
def finalizer_lock():
    lock = threading.Lock()

    class Buffer:
        pass

    def release():
        lock.acquire()  # HANGS HERE: finalizer_lock

    buffer = Buffer()
    weakref.finalize(buffer, release)
    with lock:
        del buffer


@hang("__del__ puts into the queue whose lock is held")
def del_in_queue():
    lock = threading.Lock()

    class Entry:
        def __del__(self):
            with lock:  # HANGS HERE: del_in_queue
                pass

    entries = [Entry()]
    with lock:
        entries.clear()


@hang("the handler of SIGCHLD takes a lock that the main thread holds")
def sigchld_lock():
    lock = threading.Lock()

    def reaped(*_):
        lock.acquire()  # HANGS HERE: sigchld_lock

    signal.signal(signal.SIGCHLD, reaped)
    with lock:
        subprocess.Popen(["true"])
        time.sleep(1)


@hang("the handler of SIGUSR1 takes a lock that the main thread holds", "open")
def sigusr1_lock():
    lock = threading.Lock()

    def dump(*_):
        lock.acquire()  # HANGS HERE: sigusr1_lock

    signal.signal(signal.SIGUSR1, dump)
    with lock:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(1)


@hang("a module's import waits for a thread that imports the module")
def import_lock():
    import stuck_plugin

    print(stuck_plugin.NAME)


@hang("native code: a pthread mutex, locked twice")
def native_mutex():
    mutex = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)  # HANGS HERE: native_mutex


@hang("a pipe to itself")
def pipe_to_self():
    reader, _writer = os.pipe()
    os.read(reader, 1)  # HANGS HERE: pipe_to_self


@hang("a socketpair to itself")
def socketpair_to_self():
    left, _right = socket.socketpair()
    left.recv(1)  # HANGS HERE: socketpair_to_self


@hang("a full pipe to itself")
def full_pipe_to_self():
    _reader, writer = os.pipe()
    os.write(writer, bytes(1_000_000))  # HANGS HERE: full_pipe_to_self


# asyncio


@hang("asyncio.run with a future that nobody sets")
def asyncio_future():
    async def run():
        await asyncio.get_running_loop().create_future()  # HANGS HERE: asyncio_future

    asyncio.run(run())  # HANGS HERE: asyncio_future


@hang("an asyncio.Lock that is never released")
def asyncio_lock():
    async def run():
        lock = asyncio.Lock()
        await lock.acquire()
        await lock.acquire()  # HANGS HERE: asyncio_lock

    asyncio.run(run())  # HANGS HERE: asyncio_lock


@hang("asyncio: a function in an executor takes a lock that the coroutine holds")
def asyncio_executor():
    lock = threading.Lock()

    def save():
        with lock:  # HANGS HERE: asyncio_executor
            pass

    async def run():
        with lock:
            await asyncio.to_thread(save)

    asyncio.run(run())


# Children


@hang("a child ended without putting anything into the queue")
def mp_queue_dead_child():
    items = mp.Queue()
    child = mp.Process(target=int)
    child.start()
    child.join()
    items.get()  # HANGS HERE: mp_queue_dead_child


def die_with(lock):
    lock.acquire()
    os._exit(1)


@hang("a child died with the multiprocessing lock")
def mp_lock_dead_child():
    lock = mp.Lock()
    child = mp.Process(target=die_with, args=(lock,))
    child.start()
    child.join()
    lock.acquire()  # HANGS HERE: mp_lock_dead_child


def put_much(items):
    items.put(bytes(10_000_000))


@hang("join before get: the child cannot end before its queue is read")
def mp_join_before_get():
    items = mp.Queue()
    child = mp.Process(target=put_much, args=(items,))
    child.start()
    child.join()  # HANGS HERE: mp_join_before_get
    items.get()


def wait_barrier(barrier):
    barrier.wait()  # HANGS HERE: mp_barrier


@hang("a Barrier for three processes, reached by two")
def mp_barrier():
    barrier = mp.Barrier(3)
    mp.Process(target=wait_barrier, args=(barrier,), daemon=True).start()
    barrier.wait()  # HANGS HERE: mp_barrier


def read_parent(pipe):
    pipe.recv()  # HANGS HERE: child_waits_for_parent


@hang("the child waits for the parent, which waits for the child")
def child_waits_for_parent():
    ours, theirs = mp.Pipe()
    child = mp.Process(target=read_parent, args=(theirs,))
    child.start()
    child.join()
    ours.send(1)


def crossed(mine, other):
    mine.recv()  # HANGS HERE: children_crossed
    other.send(1)


@hang("two children wait for each other; the parent joins them")
def children_crossed():
    left, right = mp.Pipe(), mp.Pipe()
    children = [
        mp.Process(target=crossed, args=(left[0], right[1])),
        mp.Process(target=crossed, args=(right[0], left[1])),
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()


@hang("wait() for a child whose output fills the pipe")
def child_output_full():
    code = "import sys; sys.stdout.write('x' * 1000000)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child.wait()  # HANGS HERE: child_output_full


@hang("a child program is stuck in its own lock")
def child_deadlock():
    subprocess.run([sys.executable, str(Path(__file__).parent / "stuck_child.py")], check=True)


REQUESTS = queue.Queue()


def log_from_child():
    REQUESTS.put("hello")  # HANGS HERE: queue_lock_across_fork


@hang("a fork while a thread holds the lock of a queue; the child uses the queue")
def queue_lock_across_fork():
    with REQUESTS.mutex:
        child = mp.Process(target=log_from_child)
        child.start()
    child.join()


def pool_task(number):
    if number == 3:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@hang("a worker of a Pool was killed in its task; map waits for the result")
def pool_worker_killed():
    with mp.Pool(2) as pool:
        pool.map(pool_task, range(4), chunksize=1)  # HANGS HERE: pool_worker_killed


def wait_forever(_):
    NEVER.wait()  # HANGS HERE: process_pool_worker


NEVER = mp.Event()


@hang("a worker of a ProcessPoolExecutor waits for an Event that nobody sets")
def process_pool_worker():
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        pool.submit(wait_forever, 1).result()


# Loaders


class Items:
    def __init__(self, event):
        self.event = event

    def __len__(self):
        return MORE

    def __getitem__(self, index):
        import torch

        if index == BEFORE:
            self.event()
        inputs = torch.randn(64, 64)
        return inputs, inputs.sum(1, keepdim=True)


def load(event, **options):
    from torch.utils.data import DataLoader

    training = Training()
    options = {"num_workers": 2, "batch_size": None, **options}
    for batch in DataLoader(Items(event), **options):
        training.step(batch)


CACHE = threading.Lock()


def use_cache():
    with CACHE:  # HANGS HERE: loader_lock_across_fork
        pass


@hang("a loader worker, forked while a thread held the lock of a cache", own=True)
def loader_lock_across_fork():
    def hold():
        with CACHE:
            threading.Event().wait()

    threading.Thread(target=hold, daemon=True).start()
    time.sleep(0.2)
    load(use_cache)


DECODERS = concurrent.futures.ThreadPoolExecutor(1)


def decode():
    DECODERS.submit(int).result()  # HANGS HERE: loader_executor_across_fork


@hang("a loader worker uses an executor whose thread did not survive the fork", own=True)
def loader_executor_across_fork():
    DECODERS.submit(int).result()
    load(decode)


EXTRA = mp.Queue()


def read_extra():
    EXTRA.get()  # HANGS HERE: loader_queue


@hang("a loader worker reads a queue that nobody fills", own=True)
def loader_queue():
    load(read_extra)


TURN = mp.Lock()


def take_turn():
    TURN.acquire()
    TURN.acquire()  # HANGS HERE: loader_mp_lock


@hang("a loader worker takes a multiprocessing lock twice; persistent workers", own=True)
def loader_mp_lock():
    load(take_turn, persistent_workers=True, num_workers=3)


def ask_child():
    reader, _ = os.pipe()
    os.read(reader, 1)  # HANGS HERE: loader_pipe


@hang("one of four loader workers reads a pipe that nobody writes", own=True)
def loader_pipe():
    load(ask_child, num_workers=4)


@hang("the prefetch thread died; the training reads its queue", own=True)
def prefetch_died():
    training = Training()
    batches = queue.Queue(4)

    def produce():
        for number in range(MORE):
            if number == BEFORE:
                raise OSError("corrupt file")
            batches.put(training.batch())

    threading.Thread(target=produce, daemon=True).start()
    for _ in range(MORE):
        training.step(batches.get())  # HANGS HERE: prefetch_died


# PyTorch


@hang("a hook in the backward pass takes a lock that is held around it", own=True)
def backward_hook():
    training = Training()
    lock = threading.Lock()

    def hook(grad):
        if training.count == BEFORE:
            lock.acquire()  # HANGS HERE: backward_hook
        return grad

    training.model[0].weight.register_hook(hook)
    for _ in range(MORE):
        with lock:
            training.step()


@hang("a hook in the backward pass waits for a thread that waits for the training", own=True)
def backward_hook_thread():
    training = Training()
    lock = threading.Lock()
    pool = concurrent.futures.ThreadPoolExecutor(1)

    def average():
        with lock:  # HANGS HERE: backward_hook_thread
            pass

    def hook(grad):
        if training.count == BEFORE:
            pool.submit(average).result()
        return grad

    training.model[0].weight.register_hook(hook)
    for _ in range(MORE):
        with lock:
            training.step()


@hang("training in a thread, stuck in a lock; the main thread joins it", own=True)
def thread_trains():
    lock = threading.Lock()
    lock.acquire()

    def train():
        training = Training()
        training.steps(BEFORE)
        lock.acquire()  # HANGS HERE: thread_trains

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()


@hang("training in a thread, stuck in a queue; the main thread polls", "open", own=True)
def thread_trains_main_polls():
    def train():
        training = Training()
        training.steps(BEFORE)
        queue.Queue().get()  # HANGS HERE: thread_trains_main_polls

    thread = threading.Thread(target=train)
    thread.start()
    while thread.is_alive():
        time.sleep(0.2)


@hang("training in a thread waits for the main thread, which waits for a result of it", own=True)
def thread_trains_result():
    progress, go = queue.Queue(), threading.Event()

    def train():
        training = Training()
        training.steps(BEFORE)
        go.wait()  # HANGS HERE: thread_trains_result
        progress.put(1)

    threading.Thread(target=train, daemon=True).start()
    progress.get()  # HANGS HERE: thread_trains_result


@hang("a thread that saves waits for the training, which waits until all is saved")
def checkpoint_thread():
    lock = threading.Lock()
    saves = queue.Queue()

    def save():
        while saves.get():
            with lock:  # HANGS HERE: checkpoint_thread
                saves.task_done()

    threading.Thread(target=save, daemon=True).start()
    with lock:
        saves.put("model.pt")
        saves.join()


# Ranks


def rank(number, port, event):
    import torch.distributed as dist

    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", world_size=2, rank=number)
    training = Training()
    for step in range(MORE):
        if step == BEFORE:
            event(number)
        training.step()
        for parameter in training.model.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= 2


def ranks(event, *args):
    import torch.multiprocessing as tmp

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    tmp.spawn(rank, (port, event, *args), nprocs=2)


def lock_on_one(number):
    if number:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()  # HANGS HERE: gloo_rank_in_lock


@hang("two gloo ranks, one stuck in its own lock", own=True)
def gloo_rank_in_lock():
    ranks(lock_on_one)


def mismatch(number):
    import torch
    import torch.distributed as dist

    if number:
        dist.recv(torch.zeros(4), src=0)  # HANGS HERE: gloo_mismatch
    else:
        dist.all_reduce(torch.zeros(4))  # HANGS HERE: gloo_mismatch


@hang("two gloo ranks: one in recv, the other in all_reduce", own=True)
def gloo_mismatch():
    ranks(mismatch)


def both_receive(number):
    import torch
    import torch.distributed as dist

    dist.recv(torch.zeros(4), src=1 - number)  # HANGS HERE: gloo_both_receive


@hang("two gloo ranks, both receive first", own=True)
def gloo_both_receive():
    ranks(both_receive)


def extra_on_zero(number):
    import torch
    import torch.distributed as dist

    if number == 0:
        dist.barrier()  # HANGS HERE: gloo_queue
    else:
        torch.zeros(1)
        queue.Queue().get()  # HANGS HERE: gloo_queue


@hang("a barrier on rank 0; rank 1 reads an empty queue", own=True)
def gloo_queue():
    ranks(extra_on_zero)


# The beginning and the end


@hang("before the first step: a lock that is taken twice", "start", own=True)
def at_start():
    import torch

    lock = threading.Lock()
    with lock:
        print(torch.zeros(1))
        lock.acquire()  # HANGS HERE: at_start


@hang("at exit: a thread that is not a daemon waits for a queue", "exit", own=True)
def exit_thread():
    items = queue.Queue()

    def upload():
        while items.get():  # HANGS HERE: exit_thread
            pass

    threading.Thread(target=upload).start()
    Training().steps(MORE)


@hang("at exit: a function of atexit waits for a lock", "exit", own=True)
def exit_function():
    lock = threading.Lock()
    lock.acquire()

    def close():
        lock.acquire()  # HANGS HERE: exit_function

    atexit.register(close)
    Training().steps(MORE)


@hang("at exit: a task in an executor never ends", "exit", own=True)
def exit_executor():
    pool = concurrent.futures.ThreadPoolExecutor(1)

    def upload():
        threading.Event().wait()  # HANGS HERE: exit_executor

    pool.submit(upload)
    Training().steps(MORE)


def read_nothing(pipe):
    pipe.recv()  # HANGS HERE: exit_child


@hang("at exit: a child of multiprocessing waits for a message", "exit", own=True)
def exit_child():
    ours, theirs = mp.Pipe()
    mp.Process(target=read_nothing, args=(theirs,)).start()
    Training().steps(MORE)
    atexit.register(ours.close)


# Only a person can tell


@hang("flock by two descriptors of the same process", "open")
def flock_twice():
    first, second = open("lock", "w"), open("lock", "w")
    fcntl.flock(first, fcntl.LOCK_EX)
    fcntl.flock(second, fcntl.LOCK_EX)  # HANGS HERE: flock_twice


@hang("a loop that waits for a file that nobody writes", "open")
def poll_forever():
    while not os.path.exists("ready"):
        time.sleep(0.5)  # HANGS HERE: poll_forever


@hang("an endless loop", "open")
def endless_loop():
    while True:
        sum(range(1000))  # HANGS HERE: endless_loop


if __name__ == "__main__":
    main()
