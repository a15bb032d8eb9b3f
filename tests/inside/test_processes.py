"""Which processes and threads of a training have a page: those that train, and no loader worker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rocsteady_train.inside import wire
from side_by_side import not_aborted

if TYPE_CHECKING:
    from tests.inside.conftest import Inside, Run

pytestmark = pytest.mark.slow

TRAIN = """
    import os, sys, threading, torch
    from torch import nn
    from torch.utils.data import DataLoader

    def train(steps=5, rank=0, wait=None, **more):
        net = nn.Linear(8, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for batch in DataLoader(torch.randn(steps * 2, 8), batch_size=2, **more):
            net(batch).mean().backward(); optimizer.step()
        return net, optimizer
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_loader_workers_have_no_page(inside: Inside, torch_python: str, method: str) -> None:
    script = f"""
    if __name__ == "__main__":
        train(num_workers=2, multiprocessing_context={method!r})
        print(os.getpid())
    """
    done = inside.run(torch_python, inside.script(TRAIN + script))

    assert (done.code, done.err, inside.notes()) == (0, b"", "")
    assert (inside.page().pid, inside.page().steps) == (int(done.out), 5)


def test_ranks_of_mp_spawn_have_a_page_each(inside: Inside, torch_python: str) -> None:
    script = """
    def worker(rank, world):
        torch.distributed.init_process_group("gloo", "file://" + os.path.abspath("store"),
            rank=rank, world_size=world)
        train(steps=3 + rank)
        torch.distributed.destroy_process_group()
    if __name__ == "__main__":
        torch.multiprocessing.spawn(worker, (2,), nprocs=2)
    """
    done = inside.run(torch_python, inside.script(TRAIN + script))
    parent, *ranks = inside.pages()

    assert (done.code, inside.notes()) == (0, "")
    assert (parent.rank, parent.steps) == (-1, 0)
    told = [(page.rank, page.words[wire.W_WORLD], page.steps, page.end) for page in ranks]
    assert told == [(0, 2, 3, wire.FINISHING), (1, 2, 4, wire.FINISHING)]


def test_ranks_of_torchrun_have_a_page_each(inside: Inside, torch_python: str) -> None:
    script = """
    torch.distributed.init_process_group("gloo")
    net = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(7):
        net(torch.randn(2, 8)).mean().backward(); optimizer.step()
    torch.distributed.destroy_process_group()
    """
    run = (torch_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    path = inside.script(TRAIN + script)

    def tried() -> Run:
        for page in inside.injection.pages.iterdir():
            page.unlink()
        return inside.run(*run, path)

    done = not_aborted(tried)
    agent, *ranks = inside.pages()

    assert done.code == 0
    assert (agent.rank, agent.steps) == (-1, 0)
    local = [page.words[wire.W_LOCAL_RANK] - 1 for page in ranks]
    told = [(page.rank, page.words[wire.W_WORLD], page.steps) for page in ranks]
    assert (told, local) == ([(0, 2, 7), (1, 2, 7)], [0, 1])


def test_a_forked_child_that_trains_has_a_page_of_its_own(
    inside: Inside, torch_python: str
) -> None:
    script = """
    train(steps=2)
    if os.fork() == 0:
        train(steps=3); os._exit(0)
    os.wait()
    train(steps=2)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    """
    done = inside.run(torch_python, inside.script(TRAIN + script))

    assert (done.code, done.err, inside.notes()) == (0, b"", "")
    assert sorted(page.steps for page in inside.pages()) == [3, 4]
    assert all(page.words[wire.W_PID] == page.pid for page in inside.pages())


def test_a_process_that_becomes_another_program_after_torch_is_watched_in_it(
    inside: Inside, torch_python: str
) -> None:
    script = """
    if len(sys.argv) == 1:
        train(steps=2)
        os.execv(sys.executable, [sys.executable, __file__, "again"])
    train(steps=3)
    """
    done = inside.run(torch_python, inside.script(TRAIN + script))

    assert (done.code, done.err, inside.notes()) == (0, b"", "")
    assert inside.page().steps == 3


def test_the_thread_that_trains_is_named_and_relieved(inside: Inside, torch_python: str) -> None:
    script = """
    import json, struct, time
    def told():
        with open(f"{os.environ['ROCSTEADY_PAGES']}/{os.getpid()}.page", "rb") as stream:
            words = struct.unpack("@512Q", stream.read())
        return words[7] == threading.get_native_id(), words[8]
    said = []
    def elsewhere():
        train(); said.append(told())
    list(DataLoader(torch.randn(4, 8)))  # asks for data, does not train
    time.sleep(0.3)
    thread = threading.Thread(target=elsewhere); thread.start(); thread.join()
    time.sleep(0.3)
    train(); said.append(told())  # the one before has ended
    time.sleep(1.1)
    thread = threading.Thread(target=elsewhere); thread.start(); thread.join()  # main waits
    print(json.dumps(said))
    """
    done = inside.run(torch_python, inside.script(TRAIN + script))

    assert (done.code, inside.notes()) == (0, "")
    assert json.loads(done.out) == [[True, 5], [True, 10], [True, 15]]


def test_hooked_objects_can_be_pickled_and_sent(inside: Inside, torch_python: str) -> None:
    script = """
    import copy, pickle, inspect
    def work(net, optimizer, save):
        assert save is torch.save
        optimizer.step(); save(net.state_dict(), "sent.pt")
    if __name__ == "__main__":
        net, optimizer = train()
        for thing in (net, optimizer, torch.save, torch.autograd.backward, nn.Module.eval):
            pickle.loads(pickle.dumps(thing))
        copy.deepcopy(optimizer)
        assert torch.save.__module__ == "torch.serialization"
        assert "pickle_module" in inspect.signature(torch.save).parameters
        child = torch.multiprocessing.get_context("spawn").Process(
            target=work, args=(net, optimizer, torch.save))
        child.start(); child.join()
        print(child.exitcode, os.path.exists("sent.pt"))
    """
    done = inside.run(torch_python, inside.script(TRAIN + script))

    assert (done, inside.notes()) == ((0, b"0 True\n", b""), "")


def test_nothing_of_the_supervisors_environment_can_be_imported(
    inside: Inside, torch_python: str
) -> None:
    script = """
    import importlib.util
    names = "rocsteady", "msgspec", "click", "_rocsteady_inside"
    print([name for name in names if importlib.util.find_spec(name)])
    print(sorted(name for name in sys.modules if "rocsteady" in name and "." not in name))
    """
    done = inside.run(torch_python, inside.script(TRAIN + script))

    assert done.out == b"['_rocsteady_inside']\n['_rocsteady_inside']\n"


def test_pages_can_be_read_by_their_owner_only(inside: Inside, torch_python: str) -> None:
    inside.run(torch_python, inside.script(TRAIN + "\n    train()\n"))

    modes = {path.suffix: path.stat().st_mode & 0o777 for path in _files(inside.injection.pages)}
    assert modes == {".page": 0o600}


def _files(folder: Path) -> list[Path]:
    return [Path(entry.path) for entry in os.scandir(folder)]
