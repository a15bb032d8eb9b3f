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
    before: tuple[str, ...] = ()  # words before the interpreter
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


def last(text: str, *codes: int) -> Kind:
    """Make a kind of how a script ends."""
    return Kind(f"{TRAINED}    print(trained, flush=True)\n    {text}\n", codes=codes)


SHELL = ("sh", "-c", 'ulimit -n 300; ulimit -c 0; umask 077; exec 7</dev/null; exec "$0" "$@"')
SPAWNED = """
    import multiprocessing, os, pickle, sys
    import torch
    class Mine:
        value = 3
    def work(queue, thing):
        found = sorted(name for name in sys.modules if name.startswith("_rocsteady"))
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
STUB = "import sys, types; sys.modules['triton'] = types.ModuleType('triton')"
STUBBED = STUB.replace("types.ModuleType('triton')", "None")
QUIET = "logging.config.dictConfig({'version': 1})"
LOGGERS = "import logging; print(logging.getLogger('torch').disabled)"
TEE = "import io, sys; sys.stderr = io.StringIO()"
TEED = "print([handler.stream is sys.stderr for handler in logging.getLogger('torch').handlers])"
SEEDS = "import random; random.seed(0)"
FORKS = "import os, time; child = os.fork(); child or (time.sleep(60), os._exit(0))"
FORKED = "os.kill(child, 9); os.waitpid(child, 0)"
THREADS = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
PARTS = """
    from torch.nn import Linear
    import sys
    parts = ["torch" in sys.modules, sys.modules["torch.nn"].Linear is Linear]
    from torch._dynamo.utils import counters
    parts += ["torch._dynamo" in sys.modules, type(counters).__name__]
    import torch._dynamo.config as config, functorch, torch._inductor.config as inductor
    whole = sys.modules["torch"]
    parts += [config is whole._dynamo.config, inductor is whole._inductor.config]
"""
KINDS = {
    "plain": Kind(FACTS, ("train.py", "a b", "", "--lr"), real=True),
    "module": Kind(FACTS, ("-m", "train", "x")),
    "package": Kind(
        "    from . import own\n    from .own import value\n" + FACTS,
        ("-m", "pack.train"),
        {"pack/__init__.py": "", "pack/own.py": "value = 1\n"},
        real=True,
    ),
    "text": Kind(FACTS, ("-c", "exec(open('train.py').read())", "a")),
    "folder": Kind(FACTS, ("folder",)),
    "spaces": Kind(FACTS, ("my scripts/my train.py",)),
    "options": Kind(FACTS, ("-u", "-O", "-B", "-X", "utf8", "train.py")),
    "dev": Kind(FACTS, ("-X", "dev", "-W", "ignore", "train.py")),
    "errors": Kind(FACTS, ("-W", "error", "train.py"), real=True),
    "seed": Kind(FACTS, variables={"PYTHONHASHSEED": "3", "PYTHONSAFEPATH": "1"}),
    "wrapped": Kind(FACTS, before=(*SHELL, "nice", "-n", "3"), real=True),
    "torch set": Kind(
        "    import torch\n    torch.set_num_threads(1)\n    torch.set_num_interop_threads(1)\n"
        "    torch.use_deterministic_algorithms(True)\n    torch.set_default_device('cpu')\n"
        + TRAINED
        + "    print(trained, torch.get_num_interop_threads())\n",
        real=True,
    ),
    "stdin": first("import sys", "print(sys.stdin.read())", stdin=b"one\ntwo"),
    "no torch": first("if not int(open('crashes').read()): raise ValueError('early')", codes=(1,)),
    "exit": last("raise SystemExit(3)", 3),
    "message": last("raise SystemExit('a message')", 1),
    "traceback": Kind(
        TRAINED + "    import own\n    try: 1 / 0\n    except Exception: own.fails()\n",
        files={"own.py": "def fails():\n    import torch\n    torch.ones(2) @ torch.ones(3)\n"},
        codes=(1,),
        real=True,
    ),
    "at once": last("import os; os._exit(4)", 4),
    "handler": last(
        "import os, signal; signal.signal(15, lambda *_: print('asked', flush=True) or"
        " os._exit(5)); os.kill(os.getpid(), 15)",
        5,
    ),
    "key": last("import os, time; os.kill(os.getpid(), 2); time.sleep(9)", 1),
    "at exit": last("import atexit; atexit.register(print, 'bye'); print(atexit._ncallbacks())", 0),
    "children": Kind(SPAWNED, real=True),
    "loaders": Kind(LOADERS, real=True),
    "compiled": Kind(COMPILED, variables={"TORCHINDUCTOR_CACHE_DIR": "made"}, real=True),
    "subprocess": first(
        "import os, subprocess, sys; readable, given = os.pipe()",
        "subprocess.run([sys.executable, 'child.py', str(given)], pass_fds=[given], check=True);"
        " print(os.read(readable, 9999))",
        files={
            "child.py": "import os, sys\nfound = sorted(os.listdir('/proc/self/fd'))\n"
            "os.write(int(sys.argv[1]), repr((sys.argv, sys.path, found)).encode())\n"
        },
    ),
    "threads": first(THREADS, "print(threading.active_count())"),
    "parts": first(PARTS.strip(), "print(parts)", real=True),
    "looks": first(
        "import importlib.util as util; looks = [util.find_spec('torch').origin for _ in '12']",
        "print(looks)",
    ),
    "method": first(
        "import multiprocessing as m; m.set_start_method('spawn')", "print(m.get_start_method())"
    ),
    "path": first(
        "import sys; sys.path.insert(0, 'vendor'); import theirs; sys.path.append('more')",
        "print(theirs.value)",
        files={"vendor/theirs.py": "value = 2\n"},
    ),
    "elsewhere": first(
        "import os; os.mkdir('new') if not os.path.exists('new') else None; os.chdir('new')",
        "print(os.getcwd())",
    ),
    "seeded": first(
        SEEDS + "; import numpy; numpy.random.seed(0)",
        "print(random.random(), numpy.random.rand(), random.getstate()[1][-1])",
        real=True,
    ),
    "double": Kind(
        "    import torch\n    torch.manual_seed(3)\n    torch.set_default_dtype(torch.float64)\n"
        "    state = torch.get_rng_state().sum().item()\n"
        + TRAINED
        + "    print(trained, state, torch.tensor(1.0).dtype)\n",
        real=True,
    ),
    "edited later": first(
        "import torch",
        "import own; print(own.value)",
        files={"own.py": "import os\nvalue = os.path.getsize(__file__) > 0\n"},
        edits="own.py",
    ),
    "theirs": first(
        "import sitecustomize",
        "print(sitecustomize.value)",
        files={"site/sitecustomize.py": "value = 3\n"},
        variables={"PYTHONPATH": "site"},
    ),
    # From here on an ordinary start is needed.
    "variable": first("import os; os.environ['OMP_NUM_THREADS'] = '1'", used=False),
    "filter": first("import warnings; warnings.simplefilter('ignore')", used=False),
    "reset": first(
        "import warnings; warnings.resetwarnings(); warnings.simplefilter('ignore')", used=False
    ),
    "tracer": first(
        "import sys; lines = []; sys.settrace(lambda f, *_: lines.append(f.f_lineno))",
        "sys.settrace(None)",
        used=False,
    ),
    "stub": first(STUB, used=False),
    "forbidden": first(STUBBED, used=False),
    "output": first(TEE, "import logging; " + TEED, used=False),
    "logging": first(f"import logging.config; {QUIET}", LOGGERS, used=False),
    "logger": first(
        "import logging; logging.setLoggerClass(type('L', (logging.Logger,), {}))",
        "print(type(logging.getLogger('torch')))",
        used=False,
    ),
    "linking": first("import sys; sys.setdlopenflags(sys.getdlopenflags() | 256)", used=False),
    "forks": first(FORKS, FORKED, used=False),
    "shadow": first("pass", files={"colorsys.txt": "", "colorsys.py": ""}, used=False),
    "looked for": first(
        "pass", "import triton; print([*triton.__path__])", files={"triton/x.py": ""}, used=False
    ),
    "archive": first("import sys; sys.path.insert(0, 'x.zip')", files={"x.zip": ""}, used=False),
    "edited": first("import torch", edits="train.py", used=False),
    "own edited": first("import own, torch", files={"own.py": ""}, edits="own.py", used=False),
    "importer": first(
        "import builtins; inner = builtins.__import__; builtins.__import__ ="
        " lambda *words, **named: inner(*words, **named)",
        used=False,
    ),
    "their torch": first(
        "import sitecustomize",
        files={"site/sitecustomize.py": "import torch\n"},
        variables={"PYTHONPATH": "site"},
        used=False,
    ),
}

HF = """
    import torch
    from transformers import PrinterCallback, Trainer, TrainingArguments
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 1)
        def forward(self, inputs, labels):
            return {"loss": ((self.inner(inputs) - labels) ** 2).mean()}
    crash_if_asked()
    torch.manual_seed(0)
    rows = [{"inputs": torch.rand(4), "labels": torch.rand(1)} for _ in range(32)]
    words = TrainingArguments("out", max_steps=8, use_cpu=True, report_to=[], disable_tqdm=True,
        save_strategy="no", logging_strategy="no", dataloader_num_workers=1)
    trainer = Trainer(Net(), words, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    print(trainer.train().training_loss, trainer.model.inner.weight.tolist())
"""
LIGHTNING = """
    import warnings
    import torch, lightning
    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 1)
        def training_step(self, batch, _): return self.inner(batch).mean()
        def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
    if __name__ == "__main__":
        crash_if_asked()
        lightning.seed_everything(0)
        trainer = lightning.Trainer(max_steps=8, accelerator="cpu", logger=False,
            enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False)
        net = Net()
        trainer.fit(net, torch.utils.data.DataLoader(torch.rand(32, 4), 4, num_workers=1))
        print(trainer.global_step, net.inner.weight.tolist())
"""
ACCELERATE = """
    import torch
    from accelerate import Accelerator
    from accelerate.utils import set_seed
    crash_if_asked()
    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = torch.nn.Linear(4, 1)
    optimizer, rows = torch.optim.AdamW(net.parameters()), torch.rand(32, 4)
    loader = torch.utils.data.DataLoader(rows, 4, shuffle=True)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(net):
            loss = net(batch).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    print(loss.item(), accelerator.device, accelerator.num_processes)
"""
TRAINERS = {
    "transformers": Kind(HF, real=True),
    "lightning": Kind(LIGHTNING, real=True),
    "accelerate": Kind(ACCELERATE, real=True),
}
