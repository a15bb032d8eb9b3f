"""Healthy runs that wait for programs and services: children, sockets, files, databases."""

from __future__ import annotations

from collections.abc import Iterator

from lookalikes.base import CONNECTION, Case, everywhere, healthy


def subprocesses() -> Iterator[Case]:
    """The training waits for a program that it started."""
    bodies = {
        "timeout-handled*": """
try:
    subprocess.run(sleeping(3600), timeout=WAIT)
except subprocess.TimeoutExpired:
    print("took too long")
""",
        "run": "subprocess.run(sleeping(WAIT), check=True)",
        "ends-by-its-alarm": """
alarmed = f"alarm {int(WAIT)}; exec 'cat'"
subprocess.Popen(["perl", "-e", alarmed], stdin=subprocess.PIPE).wait()
""",
        "output": """
program = f"import time; time.sleep({WAIT}); print(1)"
assert subprocess.check_output([sys.executable, "-c", program]) == b"1\\n"
""",
        "communicate": """
child = subprocess.Popen(
    [sys.executable, "-c", f"import time; input(); time.sleep({WAIT}); print(1)"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
)
child.communicate(b"go\\n")
""",
        "shell-pipeline": 'os.system(f"(sleep {WAIT}; echo 1) | cat | sort > sorted")',
        "grandchild": 'subprocess.run(["bash", "-c", f"bash -c \\"sleep {WAIT}; true\\"; true"])',
        "detached-grandchild": """
reader, writer = os.pipe()
subprocess.run(["bash", "-c", f"setsid bash -c 'sleep {WAIT}; echo 1 >&{writer}' &"], pass_fds=[writer])
os.close(writer)
os.read(reader, 1)
""",
        "mp-join": """
child = mp.get_context("fork").Process(target=time.sleep, args=(WAIT,))
child.start()
child.join()
""",
        "mp-spawn-join": """
child = mp.get_context("spawn").Process(target=time.sleep, args=(WAIT,))
child.start()
child.join()
""",
        "pool-map": """
with mp.get_context("fork").Pool(2) as pool:
    pool.map(time.sleep, [WAIT, 1])
""",
        "executor-of-processes": """
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1) as pool:
    pool.submit(time.sleep, WAIT).result()
""",
    }
    yield from healthy("subprocesses", bodies)


def asyncios() -> Iterator[Case]:
    """Event loops."""
    bodies = {
        "sleep*": "asyncio.run(asyncio.sleep(WAIT))",
        "wait-for": """
async def wait():
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), WAIT)


asyncio.run(wait())
""",
        "executor": """
async def wait():
    await asyncio.get_running_loop().run_in_executor(None, time.sleep, WAIT)


asyncio.run(wait())
""",
        "call-later": """
async def wait():
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(WAIT, future.set_result, 1)
    await future


asyncio.run(wait())
""",
        "subprocess": """
async def wait():
    child = await asyncio.create_subprocess_exec(*sleeping(WAIT))
    await child.wait()


asyncio.run(wait())
""",
        "loop-in-a-thread": """
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(asyncio.sleep(WAIT), loop).result()
""",
    }
    yield from healthy("asyncio", bodies)
    outside = "connection = server()\ntime.sleep(WAIT)\nconnection.send(b'1')"
    body = """
async def wait():
    reader, writer = await asyncio.open_connection("127.0.0.1", int(open("port").read()))
    await reader.read(1)
    writer.close()


asyncio.run(wait())
"""
    yield Case(name="asyncio/stream", body=body, outside=outside)


def sockets() -> Iterator[Case]:
    """Pipes and sockets whose other end is outside."""
    outside = "connection = server()\ntime.sleep(WAIT)\nconnection.send(b'1\\n')\ntime.sleep(2)"
    bodies = {
        "recv*": f"{CONNECTION}.recv(1)",
        "thread-receives": f"""
connection, got = {CONNECTION}, queue.Queue()
threading.Thread(target=lambda: got.put(connection.recv(1))).start()
got.get()
""",
        "child-receives": f"""
connection = {CONNECTION}
ours, theirs = mp.Pipe()
context = mp.get_context("fork")
context.Process(target=lambda: theirs.send(connection.recv(1))).start()
ours.recv()
""",
        "select-without-timeout": f"select.select([{CONNECTION}], [], [])",
    }
    yield from healthy("sockets", bodies, outside=outside)
    yield Case(
        name="sockets/unix",
        body='with socket.socket(socket.AF_UNIX) as s:\n    s.connect("socket")\n    s.recv(1)',
        outside="connection = server(socket.AF_UNIX)\ntime.sleep(WAIT)\nconnection.send(b'1')",
    )
    yield Case(
        name="sockets/http",
        body="import urllib.request\nport = open('port').read()\n"
        "urllib.request.urlopen(f'http://127.0.0.1:{port}/').read()",
        outside="connection = server()\nconnection.recv(4096)\ntime.sleep(WAIT)\n"
        "connection.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')\ntime.sleep(2)",
    )
    yield Case(
        name="sockets/sends-to-slow-reader",
        body=f"{CONNECTION}.sendall(bytes(64_000_000))",
        outside="connection = server()\ntime.sleep(WAIT)\nwhile connection.recv(1 << 20):\n    pass",
    )
    yield Case(
        name="sockets/accepts-late-client",
        body="listener = socket.socket()\nlistener.bind(('127.0.0.1', 0))\nlistener.listen()\n"
        "with open('port', 'w') as file:\n    file.write(str(listener.getsockname()[1]))\n"
        "listener.accept()",
        outside=f"ready()\nuntil_event()\ntime.sleep(WAIT)\n{CONNECTION}",
    )
    yield Case(
        name="sockets/mp-connection",
        body="from multiprocessing.connection import Client\n"
        "Client('service', family='AF_UNIX').recv()",
        outside="from multiprocessing.connection import Listener\n"
        "listener = Listener('service', family='AF_UNIX')\nready()\n"
        "connection = listener.accept()\ntime.sleep(WAIT)\nconnection.send(1)\ntime.sleep(2)",
    )


def slow_io() -> Iterator[Case]:
    """Data that comes or goes slowly."""
    feeder = 'os.mkfifo("fifo")\nready()\nwith open("fifo", "wb") as fifo:\n    until_event()\n'
    reader = 'os.mkfifo("fifo")\nready()\nwith open("fifo", "rb") as fifo:\n    {}'
    late = feeder + "    time.sleep(WAIT)\n    fifo.write(b'1\\n')"
    yield from everywhere(
        Case(
            name="slow-io/fifo",
            setup='fifo = os.open("fifo", os.O_RDONLY)',
            body="os.read(fifo, 1)",
            outside=late,
        )
    )
    yield Case(
        name="slow-io/trickle",
        setup='fifo = open("fifo", "rb")',
        body="assert len(fifo.read(4)) == 4",
        outside=feeder + "    for _ in range(4):\n        time.sleep(WAIT / 4)\n"
        "        fifo.write(b'1')\n        fifo.flush()",
    )
    yield Case(
        name="slow-io/checkpoint-to-slow-reader",
        body='with open("fifo", "wb") as fifo:\n    torch.save(torch.zeros(1_000_000), fifo)',
        outside=reader.format("time.sleep(WAIT)\n    while fifo.read(65536):\n        pass"),
    )
    yield Case(
        name="slow-io/fifo-opened-late",
        body='open("fifo", "rb").read()',
        outside='os.mkfifo("fifo")\nready()\nuntil_event()\ntime.sleep(WAIT)\n'
        'open("fifo", "wb").close()',
    )
    yield Case(
        name="slow-io/stdin",
        body="sys.stdin.readline()",
        outside=late,
        command=("bash", "-c", '"$0" t.py < fifo', "PYTHON"),
    )
    yield Case(
        name="slow-io/prefetch-thread",
        setup='fifo = os.open("fifo", os.O_RDONLY)',
        body="""
batches = queue.Queue(1)
threading.Thread(target=lambda: batches.put(os.read(fifo, 1))).start()
batches.get()
""",
        outside=late,
    )


def databases() -> Iterator[Case]:
    """SQLite with somebody else's transaction, and its own threads."""
    outside = """
database = sqlite3.connect("data.db", isolation_level=None)
database.execute("create table if not exists t (x)")
database.execute("begin exclusive")
ready()
until_event()
time.sleep(WAIT)
database.execute("commit")
"""
    insert = """
database = sqlite3.connect("data.db", timeout=WAIT * 10)
with database:
    database.execute("insert into t values (1)")
"""
    bodies = {
        "busy*": insert,
        "busy-in-thread": f"""
def insert():
    {insert.strip().replace(chr(10), chr(10) + "    ")}


thread = threading.Thread(target=insert)
thread.start()
thread.join()
""",
        "retries": """
while True:
    try:
        database = sqlite3.connect("data.db", timeout=0.1)
        with database:
            database.execute("insert into t values (1)")
        break
    except sqlite3.OperationalError:
        threading.Event().wait(0.5)
""",
    }
    yield from healthy("databases", bodies, outside=outside)


def vector_environments() -> Iterator[Case]:
    """Simulators in processes, as in reinforcement learning."""
    simulators = """
context = mp.get_context("fork")
lock = context.Lock()


def simulate(connection, index):
    while connection.recv():
        {step}
        connection.send(index)


pairs = [context.Pipe() for _ in range(2)]
for index, (_, theirs) in enumerate(pairs):
    context.Process(target=simulate, args=(theirs, index), daemon=True).start()
"""
    body = """
for ours, _ in pairs:
    ours.send(1)
for ours, _ in pairs:
    ours.recv()
"""
    steps = {
        "share-a-lock*": "with lock:\n            time.sleep(WAIT / 2)",
        "one-resets": "time.sleep(WAIT * index)",
        "frame-limiter": "for _ in range(int(WAIT * 10)):\n            time.sleep(0.1)",
        "timed-wait": "threading.Event().wait(WAIT)",
        "computes": "until = time.monotonic() + WAIT * index\n"
        "        while time.monotonic() < until:\n            pass",
    }
    for name, step in steps.items():
        yield from healthy("vector-environments", {name: body}, setup=simulators.format(step=step))
    yield Case(
        name="vector-environments/waits-for-any",
        setup=simulators.format(step="time.sleep(WAIT)"),
        body="from multiprocessing.connection import wait\npairs[0][0].send(1)\n"
        "wait([ours for ours, _ in pairs])",
    )


def printing() -> Iterator[Case]:
    """Threads that print beside a wait that ends by itself."""
    printer = """
done = threading.Event()


def beat():
    beats = 0
    while not done.wait(1):
        beats += 1
        {print}


threading.Thread(target=beat).start()
{wait}
done.set()
"""
    prints = {
        "beat": 'print(f"beat {beats}", flush=True)',
        "clock": 'print(f"\\r50% |#####     | elapsed {beats} s", end="", file=sys.stderr, flush=True)',
        "log": 'logging.warning("still here")',
    }
    waits = {
        "event": "threading.Event().wait(WAIT)",
        "program": "subprocess.run(sleeping(WAIT))",
        "thread": "thread = threading.Thread(target=time.sleep, args=(WAIT,))\nthread.start()\n"
        "thread.join()",
    }
    for (name, said), (other, wait) in zip(prints.items(), waits.items(), strict=True):
        yield from healthy(
            "printing", {f"{name}-beside-{other}": printer.format(print=said, wait=wait)}
        )
    yield Case(
        name="printing/evaluation-without-steps",
        body="for index in range(int(WAIT)):\n    print(f'evaluated {index}', flush=True)\n"
        "    time.sleep(1)",
    )
