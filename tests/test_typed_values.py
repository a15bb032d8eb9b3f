"""Two threads that read a type for the first time: what crashes Python if msgspec is left alone."""

from __future__ import annotations

import subprocess
import sys

RACE = """
import sys, threading, types
from rocsteady.typed_values import convert

sys.setswitchinterval(1e-6)
SOURCE = '''
from __future__ import annotations
import msgspec
class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    number: int = 0
    words: tuple[str, ...] = ()
class Branch(msgspec.Struct, frozen=True, kw_only=True):
    leaf: Leaf = Leaf()
    by_name: dict[str, Leaf] = {}
class Tree(msgspec.Struct, frozen=True, kw_only=True):
    branch: Branch = Branch()
    branches: list[Branch] = []
'''
for number in range(300):
    module = types.ModuleType(f"trees_{number}")
    sys.modules[module.__name__] = module
    exec(SOURCE, module.__dict__)
    at_once = threading.Barrier(4)

    def read():
        at_once.wait()
        found = convert({"branches": [{"leaf": {"number": 2}}]}, module.Tree)
        assert found.branches[0].leaf.number == 2

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("read")
"""


def test_threads_that_first_read_a_type_do_not_crash_each_other() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RACE], capture_output=True, text=True, check=False, timeout=120
    )

    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr[-2000:]
