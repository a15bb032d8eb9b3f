"""Kinds of scripts, to be started ordinarily and from a standby: all that they print is compared.

Each begins with ``crash_if_asked`` of ``standbys.py``, and calls it once it has imported torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Each entry is one fact of the process, at the first line of the script.
FIRST_LINE = """
    import faulthandler, gc, json, locale, os, resource, signal, sys, threading, warnings, __main__
    def about(number):
        try: found = os.fstat(number)
        except OSError: return None  # it was the folder that is listed
        place = os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
        return found.st_mode, os.get_inheritable(number), place.startswith("/dev/shm")
    def seen(path):
        with open(path) as stream: return stream.read()
    lines = [line.partition(":") for line in seen("/proc/self/status").splitlines()]
    changing = ("Vm", "Rss", "HugetlbPages", "voluntary", "nonvoluntary", "Pid", "Tgid", "PPid",
        "Ngid", "NS", "Threads", "FDSize", "SigQ")
    status = {name: text for name, _, text in lines if not name.startswith(changing)}
    status["SigCgt"] = int(status["SigCgt"], 16) % 2**31  # the C library keeps two above for itself
    first_line = {
        "argv": [sys.argv, sys.orig_argv, seen("/proc/self/cmdline"), seen("/proc/self/comm")],
        "main": [sorted(vars(__main__)), __spec__ and (__spec__.name, __spec__.origin),
            __name__, str(__package__),
            globals().get("__file__"), type(globals().get("__loader__")).__name__],
        "python": [sys.executable, sys.prefix, sys.path, str(sys.flags), str(sys._xoptions)],
        "warnings": [sys.warnoptions, str(warnings.filters[-5 - len(sys.warnoptions):])],
        "torch": [name in sys.modules for name in ("torch", "torch._dynamo", "torch.nn")],
        "hash": hash("a") if os.environ.get("PYTHONHASHSEED") else None,
        "hooks": [str(hook).partition(" at ")[0] for hook in (sys.excepthook, sys.displayhook,
            sys.unraisablehook, threading.excepthook, sys.gettrace(), sys.getprofile())],
        "settings": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.getdlopenflags(),
            gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), faulthandler.is_enabled(),
            sys.dont_write_bytecode, locale.setlocale(locale.LC_ALL), threading.stack_size()],
        "builtins": sorted(vars(__builtins__)),
        "threads": [thread.name for thread in threading.enumerate()],
        "status": status,
        "folder": [os.getcwd(), os.nice(0), os.sched_getscheduler(0), os.getcwd()],
        "session": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(),
            seen("/proc/self/stat").rpartition(")")[2].split()[4:6]],
        "kernel": [seen(f"/proc/self/{name}") for name in ("oom_score_adj", "coredump_filter",
            "personality", "timerslack_ns", "limits")],
        "signals": {n: str(signal.getsignal(n)).partition(" at ")[0]
            for n in sorted(signal.valid_signals())},
        "timers": [signal.getitimer(n) for n in (0, 1, 2)],
        "descriptors": {n: about(n) for n in sorted(map(int, os.listdir("/proc/self/fd")))},
        "environment": {name: "" if name.startswith(("ROCSTEADY_", "PYTHONPATH")) else value
            for name, value in os.environ.items()},
        "streams": [(stream.encoding, stream.errors, stream.line_buffering, stream.isatty())
            for stream in (sys.stdin, sys.stdout, sys.stderr)],
    }
"""
TRAINED = """
    import torch
    crash_if_asked()
    trained = [torch.__spec__.origin, sorted(vars(torch.__loader__))]
    if hasattr(torch, "nn"):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(torch.rand(2, 4)).mean()
            loss.backward()
            optimizer.step()
        trained += [loss.item(), torch.rand(1).item(), torch.get_num_threads(),
            torch._dynamo.__spec__.origin]
"""
AFTER = "    print(json.dumps([first_line, trained, sorted(os.environ), str(warnings.filters)]))\n"
FACTS = FIRST_LINE + TRAINED + AFTER


@dataclass(frozen=True)
class Kind:
    """A script, how it is started, and whether it may be started from a standby."""

    script: str
    words: tuple[str, ...] = ("train.py",)  # after the interpreter
    files: dict[str, str] = field(default_factory=dict)
    used: bool = True
    real: bool = False  # it needs the real torch, and not only what imports for a second
    variables: dict[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    codes: tuple[int, ...] = (0,)


def first(
    text: str,
    then: str = "pass",
    edits: str = "",
    **more: Any,  # noqa: ANN401 - fields of Kind
) -> Kind:
    """Make a kind of what a script does before it imports torch, and at its end."""
    edit = f"if int(open('crashes').read()): open({edits!r}, 'a').write('#')" if edits else "pass"
    return Kind(f"    {text}\n    {edit}\n{TRAINED}    print(trained)\n    {then}\n", **more)


SPAWNED = """
    import multiprocessing, os, pickle, sys
    import torch
    class Mine:
        value = 3
    def work(queue, thing):
        found = sorted(name for name in sys.modules
            if name.startswith("_rocsteady") and not name.endswith(".standby"))
        queue.put((type(thing).__module__, thing.value, __name__, sys.argv, found))
    def squared(number): return number * number, __name__
    if __name__ == "__main__":
        crash_if_asked()
        print(pickle.loads(pickle.dumps(Mine())).__class__)
        for method in ("fork", "spawn", "forkserver"):
            context = multiprocessing.get_context(method)
            queue = context.SimpleQueue()
            child = context.Process(target=work, args=(queue, Mine()))
            child.start()
            print(method, queue.get())
            child.join()
            with context.Pool(2) as pool: print(child.exitcode, pool.map(squared, range(3)))
"""
LOADERS = """
    import torch
    from torch.utils.data import DataLoader, Dataset
    class Numbers(Dataset):
        def __len__(self): return 4
        def __getitem__(self, index): return torch.tensor(float(index)) + torch.rand(1)
    if __name__ == "__main__":
        crash_if_asked()
        torch.manual_seed(1)
        for how in ("fork", "spawn", "forkserver"):
            loader = DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context=how,
                persistent_workers=True, shuffle=True)
            for _ in range(2): print(how, [batch.tolist() for batch in loader])
        torch.save(torch.nn.Sequential(torch.nn.Linear(1, 1)), "whole.pt")
        print(torch.load("whole.pt", weights_only=False)[0].weight.item())
"""
COMPILED = """
    import logging, torch
    crash_if_asked()
    torch.manual_seed(0)
    net = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
    loss = net(torch.ones(2, 4)).sum()
    loss.backward()
    print(loss.item(), torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""
KINDS = {
    "plain": Kind(FACTS, ("train.py", "a b", "", "--lr"), real=True),
    "traceback": Kind(
        TRAINED + "    import own\n    try: 1 / 0\n    except Exception: own.fails()\n",
        files={"own.py": "def fails():\n    import torch\n    torch.ones(2) @ torch.ones(3)\n"},
        codes=(1,),
        real=True,
    ),
    "children": Kind(SPAWNED, real=True),
    "loaders": Kind(LOADERS, real=True),
    "compiled": Kind(COMPILED, variables={"TORCHINDUCTOR_CACHE_DIR": "made"}, real=True),
    "spaces": Kind(FACTS, ("my scripts/my train.py",)),
    "stdin": first("import sys", "print(sys.stdin.read())", stdin=b"one\ntwo"),
    "path": first(
        "import sys; sys.path.insert(0, 'vendor'); import theirs; sys.path.append('more')",
        "print(theirs.value)",
        files={"vendor/theirs.py": "value = 2\n"},
    ),
    "handler": Kind(
        f"{TRAINED}    print(trained, flush=True)\n"
        "    import os, signal; signal.signal(15, lambda *_: print('asked', flush=True) or"
        " os._exit(5)); os.kill(os.getpid(), 15)\n",
        codes=(5,),
    ),
    "theirs": first(
        "import sitecustomize",
        "print(sitecustomize.value)",
        files={"site/sitecustomize.py": "value = 3\n"},
        variables={"PYTHONPATH": "site"},
    ),
    # From here on an ordinary start is needed.
    "module": Kind(FACTS, ("-m", "train", "x"), used=False),
    "variable": first("import os; os.environ['OMP_NUM_THREADS'] = '1'", used=False),
    "edited": first("import torch", edits="train.py", used=False),
    "shadow": first("pass", files={"colorsys.txt": "", "colorsys.py": ""}, used=False),
    "looked for": first(
        "pass", "import triton; print([*triton.__path__])", files={"triton/x.py": ""}, used=False
    ),
}
