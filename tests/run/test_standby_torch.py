"""A run with a standby and a real torch: each attempt from one is as a bare one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("a standby is of Linux", allow_module_level=True)

from process_facts import FACTS
from standbys import CRASHES, Standbys

pytestmark = pytest.mark.slow
KEEP = "    facts = []\n    def print(text): facts.append(text)\n"
AFTER = """
    crash_if_asked()
    import builtins, torch
    found = json.loads(facts[0])
    found["modules"] = [name for name in ("torch", "torch._dynamo") if name in found["modules"]]
    found["environment"] = {
        name: value for name, value in found["environment"].items()
        if not name.startswith(("ROCSTEADY_", "PYTHONPATH"))}
    torch.manual_seed(0)
    found["torch"] = [torch.__version__, torch.rand(2).tolist(),
        torch.__spec__.origin,
        sorted(vars(torch.__loader__)), torch.get_num_threads(), torch.cuda.is_initialized()]
    torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
    found["dynamo"] = [torch._dynamo.__spec__.origin, "torch._dynamo" in sys.modules]
    builtins.print(json.dumps(found))
"""
WORKERS = """
    import atexit, os, pickle, sys, warnings
    import torch
    from torch.utils.data import DataLoader, Dataset
    class Numbers(Dataset):
        def __len__(self): return 8
        def __getitem__(self, index): return torch.tensor(float(index)) + torch.rand(1)
    def rank(rank, value): print("rank", rank, value, __name__, flush=True)
    if __name__ == "__main__":
        crash_if_asked()
        torch.manual_seed(1)
        atexit.register(print, "at the end")
        print(pickle.loads(pickle.dumps(Numbers())).__class__, sys.argv)
        for context in ("fork", "spawn", "forkserver"):
            loader = DataLoader(Numbers(), 4, num_workers=2, multiprocessing_context=context)
            print(context, [batch.tolist() for batch in loader], flush=True)
        torch.multiprocessing.spawn(rank, ("x",), nprocs=1)
        net = torch.compile(torch.nn.Linear(4, 1), backend="eager")
        print(net(torch.ones(1, 4)).item(), torch.get_num_threads())
        warnings.warn("mine")
        torch.ones(2) @ torch.ones(3)
"""


@pytest.fixture
def standbys(tmp_path: Path) -> Standbys:
    return Standbys(tmp_path)


@pytest.mark.ci
def test_every_fact_of_the_third_attempt_is_the_same(standbys: Standbys, torch_python: str) -> None:
    standbys.runs.script(CRASHES + KEEP + FACTS + AFTER)
    command = (torch_python, "-W", "ignore", "-m", "train", "a b", "--lr", "")

    bare = standbys.bare(*command, PYTHONHASHSEED="0")
    watched = standbys.watched(*command, crashes=2, PYTHONHASHSEED="0")

    assert standbys.used == 2, standbys.notes
    assert json.loads(watched.out) == json.loads(bare.out)
    assert (watched.code, watched.err) == (bare.code, bare.err) == (0, b"")


def test_workers_ranks_compiling_and_a_traceback(standbys: Standbys, torch_python: str) -> None:
    script = standbys.runs.script(CRASHES + WORKERS)

    bare = standbys.bare(torch_python, script, "a")
    watched = standbys.watched(torch_python, script, "a")

    assert standbys.used == 1, standbys.notes
    assert watched == bare
    assert watched.code == 1


def test_a_variable_that_is_set_before_torch_rules_it_out(
    standbys: Standbys, torch_python: str
) -> None:
    first = "    import os; os.environ['OMP_NUM_THREADS'] = '1'\n"
    script = standbys.runs.script(CRASHES + first + "    crash_if_asked()")

    watched = standbys.watched(torch_python, script, SECONDS="12")

    assert (watched.code, standbys.used) == (0, 0)
    assert any("OMP_NUM_THREADS" in note for note in standbys.notes)


def test_an_edited_script_is_started_as_always(standbys: Standbys, torch_python: str) -> None:
    edit = "    if int(open('crashes').read()): open(__file__, 'a').write('#')\n"
    script = standbys.runs.script(CRASHES + "    import torch\n" + edit + "    crash_if_asked()")

    watched = standbys.watched(torch_python, script)

    assert (watched.code, standbys.used) == (0, 0)
    assert any("edited" in note for note in standbys.notes)


def test_a_variable_that_is_set_only_after_the_restart_is_reported(
    standbys: Standbys, torch_python: str
) -> None:
    first = "    import os\n    int(open('crashes').read()) or os.environ.update(MINE='1')\n"
    trains = """
    import time
    optimizer, end = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), 0.1), time.time() + 8
    while time.time() < end:
        optimizer.step()
        time.sleep(0.05)
    """
    script = standbys.runs.script(
        CRASHES + first + "    import torch\n    crash_if_asked()\n" + trains
    )

    watched = standbys.watched(torch_python, script)

    assert (watched.code, standbys.used) == (0, 1)
    assert any("MINE" in note for note in standbys.notes)
