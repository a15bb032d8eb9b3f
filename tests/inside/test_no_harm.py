"""A script ends, prints and fails as it does without us, byte for byte."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from rocsteady_train.inside import wire

if TYPE_CHECKING:
    from tests.inside.conftest import Inside

pytestmark = pytest.mark.slow

TRAIN = """
    import os, signal, sys, threading, time, warnings
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
    torch.manual_seed(0)
    net = nn.Linear(8, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in DataLoader(torch.randn(10, 8), batch_size=2, shuffle=True):
        loss = net(batch).square().mean(); optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(loss.item())
"""
ENDS = {
    "normally": ("", 0, wire.FINISHING),
    "by an exception": ("raise ValueError('of theirs')", 1, wire.RAISED),
    "by sys.exit": ("sys.exit(3)", 3, wire.FINISHING),
    "by a message": ("sys.exit('a message')", 1, wire.FINISHING),
    "by os._exit": ("sys.stdout.flush(); os._exit(4)", 4, wire.RUNNING),
    "by SIGKILL": ("sys.stdout.flush(); os.kill(os.getpid(), signal.SIGKILL)", -9, wire.RUNNING),
    "by SIGTERM": ("sys.stdout.flush(); os.kill(os.getpid(), signal.SIGTERM)", -15, wire.RUNNING),
    "by ^C": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", -2, wire.RAISED),
    "by a failing backward": ("loss.backward()", 1, wire.RAISED),
    "by a failing save": ("torch.save(net, '/does/not/exist')", 1, wire.RAISED),
    "by a failing dataset": (
        """
    class Bad(Dataset):
        def __len__(self): return 2
        def __getitem__(self, index):
            try: raise KeyError(index)
            except KeyError as error: raise ValueError("bad sample") from error
    for batch in DataLoader(Bad()): pass""",
        1,
        wire.RAISED,
    ),
    "with a warning": (
        """
    class Long(torch.utils.data.IterableDataset):
        def __len__(self): return 1
        def __iter__(self): return iter([1, 2])
    for batch in DataLoader(Long(), batch_size=None): pass
    warnings.warn("of theirs")""",
        0,
        wire.FINISHING,
    ),
    "with a hook of its own": (
        """
    sys.excepthook = lambda *error: print("mine", error[1])
    raise ValueError('of theirs')""",
        1,
        wire.FINISHING,
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_ends_as_without_us(inside: Inside, torch_python: str, how: str) -> None:
    text, code, end = ENDS[how]
    script = inside.script(TRAIN + "    " + text)

    watched = inside.run(torch_python, script)

    assert watched == inside.run(torch_python, script, watched=False)
    assert (watched.code, inside.page().end) == (code, end)
    assert (inside.page().steps, inside.notes()) == (5, "")


@pytest.mark.parametrize(
    "hang",
    [
        "threading.Thread(target=time.sleep, args=(60,)).start()",
        "import atexit; atexit.register(time.sleep, 60)",
        """
    from concurrent.futures import ThreadPoolExecutor
    ThreadPoolExecutor().submit(time.sleep, 60)""",
    ],
    ids=["a thread", "atexit", "a thread pool"],
)
def test_a_hang_at_exit_says_first_that_the_work_is_done(
    inside: Inside, torch_python: str, hang: str
) -> None:
    script = inside.script(TRAIN + "    " + hang)
    with subprocess.Popen(
        [torch_python, script], env=inside.environment(), stdout=subprocess.DEVNULL
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                pages = inside.pages()
                if pages and pages[0].end != wire.RUNNING:
                    break
                time.sleep(0.05)
            assert (inside.page().end, inside.page().phase) == (wire.FINISHING, "finishing")
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)


def test_a_thread_that_trains_after_the_main_one_ended_is_not_finishing(
    inside: Inside, torch_python: str
) -> None:
    script = inside.script("""
        import threading, time
        import torch, struct, os
        def train():
            net = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(net.parameters())
            for _ in range(5):
                net(torch.ones(2)).backward(); optimizer.step(); time.sleep(0.2)
            with open(f"{os.environ['ROCSTEADY_PAGES']}/{os.getpid()}.page", "rb") as stream:
                print(struct.unpack("@512Q", stream.read())[13])
        threading.Thread(target=train).start()
    """)

    assert inside.run(torch_python, script) == (0, b"0\n", b"")
    assert (inside.page().end, inside.page().steps) == (wire.FINISHING, 5)


def test_graphs_are_compiled_as_without_us(inside: Inside, torch_python: str) -> None:
    script = inside.script("""
        import torch
        from torch._dynamo.utils import counters
        graphs = []
        def backend(graph, inputs):
            graphs.append(len(graph.graph.nodes)); return graph.forward
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
        optimizer = torch.optim.AdamW(net.parameters())
        def step(batch):
            optimizer.zero_grad(); net(batch).mean().backward(); optimizer.step()
        def evaluate(batch):
            net.eval(); return net(batch)
        train, test = torch.compile(step, backend=backend), torch.compile(evaluate, backend=backend)
        for _ in range(3): train(torch.ones(2, 4)); test(torch.ones(2, 4)); net.train()
        whole = torch.compile(evaluate, backend=backend, fullgraph=True)
        print(whole(torch.ones(2, 4)).shape, graphs, sum(counters["graph_break"].values()) <= 3)
    """)

    watched = inside.run(torch_python, script)
    bare = inside.run(torch_python, script, watched=False)

    assert (watched.code, watched.out) == (bare.code, bare.out)
    assert watched.err.count(b"\n") == bare.err.count(b"\n")  # lines of torch's own log
    assert (watched.code, inside.page().steps, inside.notes()) == (0, 3, "")
