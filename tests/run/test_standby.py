"""When a run keeps a standby, and that it ends, prints and finds its world as any attempt does."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

if sys.platform != "linux":
    pytest.skip("a standby is of Linux", allow_module_level=True)

from process_facts import ENDS, FACTS, WORDS
from sample_run import bucket, record
from side_by_side import Ended, SideBySide, as_a_shell, left_behind
from torch_stand_in import stand_in_torch

from rocsteady.run.attempt.injection import Injection, inject, remove
from rocsteady.run.engines.standby import (
    IMPORTS,
    ORDER,
    TURN,
    changes,
    is_plain,
    lacks_memory,
    pays,
    shadowing,
)
from rocsteady.system.child import Start, WaitingCommand
from rocsteady.system.child_end import TerminalUse

PYTHON = sys.executable
WITHIN = 60.0  # seconds
OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


@pytest.mark.parametrize(
    ("failures", "restart", "now", "expected"),
    [
        (3, 20.0, 1600.0, True),  # 3 restarts of 20 s in 10 min
        (2, 20.0, 1600.0, False),
        (3, 19.0, 1600.0, False),
        (3, 20.0, 2000.0, False),
        (9, 0.0, 1600.0, False),
    ],
)
def test_it_pays_after_three_failures_if_restarts_took_a_tenth_of_the_time(
    failures: int, restart: float, now: float, *, expected: bool
) -> None:
    ran = record()
    first, second = ran.attempts
    ran = msgspec.structs.replace(
        ran,
        failures=ran.failures * failures,
        attempts=(
            first,
            *(
                msgspec.structs.replace(second, number=number, started=1100.0 * number)
                for number in (2, 3, 4, 5)
            ),
        ),
        progress=(
            bucket(1, 1),
            *(bucket(number, 9, first_progress=1100.0 * number + restart) for number in (2, 3, 4)),
            bucket(3, 10),  # not the first of this attempt
            bucket(5, 11, first_progress=None),
        ),
    )

    assert pays(ran, now + 0.5 * (not expected) - 0.5 * expected) is expected


def test_a_plain_command_is_a_python_and_a_script() -> None:
    assert is_plain(("/usr/bin/python3.11", "train.py", "--lr", "1"))
    for words in ("python", "python -m train", "python -c 1.py", "python -u train.py",
                  "torchrun train.py", "python folder", "sh -c train.py"):  # fmt: skip
        assert not is_plain(words.split())


class Waiting:
    """Starts commands that wait before they come to their script."""

    def __init__(self, runs: SideBySide) -> None:
        self.runs, self.name = runs, f"sb-{os.getpid()}-{time.monotonic_ns()}"
        runs.environment["PYTHONPATH"] = stand_in_torch(runs)
        self.injection: Injection = inject(f"{self.name}-1-standby", {}, "test")
        self.next: Injection = inject(f"{self.name}-1", {}, "test")
        self.process: WaitingCommand | None = None
        self.opened: tuple[int, ...] = ()

    def environment(self, injection: Injection, **more: str) -> dict[str, str]:
        existing = {**self.runs.environment, **more}
        run_id = f"{self.name}-1"
        return existing | injection.environment(existing, run_id=run_id, supervisor=1)

    def start(self, *command: str, **more: str) -> WaitingCommand:
        os.mkfifo(self.injection.site / TURN)
        (self.injection.site / ORDER).touch()
        out, err = (os.open(self.runs.folder.parent / name, OUTPUT) for name in ("out", "err"))
        given, ours = os.pipe()
        os.close(ours)
        self.begun = Start(
            command=command,
            environment=self.environment(self.injection, **more),
            folder=self.runs.folder,
            run_id=f"{self.name}-1",
            log=self.runs.folder.parent / "log",
            terminal=TerminalUse(stdin=given, stdout=out, stderr=err),
        )
        self.process = WaitingCommand(self.begun)
        self.opened = (given, out, err)
        return self.process

    def ready(self) -> dict[str, object] | None:
        """Return its report; None if it ended before."""
        assert self.process is not None
        report, end = self.injection.pages / f"{self.process.pid}.ready", time.monotonic() + WITHIN
        while time.monotonic() < end:
            if report.exists():
                return dict(json.loads(report.read_text()))
            if not self.process.is_waiting():
                return None
            time.sleep(0.01)
        raise TimeoutError

    def let_go(self, *arguments: str, **changed: str | None) -> Ended:
        """Give it its turn, and return its end."""
        assert self.process is not None
        new = changes(self.begun.environment, self.environment(self.next))
        places = {name: new[name] for name in ("PYTHONPATH", "ROCSTEADY_PAGES")}
        turn = os.open(self.injection.site / TURN, os.O_WRONLY | os.O_NONBLOCK)
        child = self.process.watched(self.begun)
        self.process = None
        order = {"arguments": arguments, "environment": {**places, **changed}}
        os.write(turn, json.dumps(order).encode())
        os.close(turn)
        exited = child.wait(WITHIN)
        child.close()
        assert exited is not None
        code = exited.code if exited.code is not None else -(exited.signal or 0)
        out, err = ((self.runs.folder.parent / name).read_bytes() for name in ("out", "err"))
        return Ended(as_a_shell(code), out, err)

    def recorded(self, *command: str) -> str:
        """Return what an attempt leaves that rules a standby out."""
        (self.injection.site / IMPORTS).touch()
        ended = self.runs.bare(*command, stdin=b"", **self.environment(self.injection))
        reports = [*self.injection.pages.glob("*.imports")]
        assert len(reports) == 1, ended
        return str(json.loads(reports[0].read_text())["against"])

    def end(self) -> None:
        if self.process is not None:
            self.process.end()
        for descriptor in self.opened:
            os.close(descriptor)
        remove(self.injection.pages.parent)
        remove(self.next.pages.parent)
        assert left_behind(self.name) == []


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    made = Waiting(SideBySide(tmp_path))
    yield made
    made.end()


def both(waiting: Waiting, script: str, *arguments: str) -> Ended:
    """Run it bare, and from a standby; it must come to the same."""
    bare = waiting.runs.bare(PYTHON, script, *arguments, stdin=b"")
    waiting.start(PYTHON, script, "arguments", "of before")
    report = waiting.ready()
    assert report is not None
    assert report["against"] == ""
    ended = waiting.let_go(*arguments)
    assert ended == bare
    return ended


@pytest.mark.parametrize("how", ["by an exception", "by sys.exit", "by SIGKILL"])
def test_ends_as_one_started_just_now(waiting: Waiting, how: str) -> None:
    text, code = ENDS[how]

    assert both(waiting, waiting.runs.script(f"import torch\n{text}")).code == code


def test_every_fact_is_the_same_but_for_modules(waiting: Waiting) -> None:
    command = (PYTHON, Path(waiting.runs.script(FACTS)).name, *WORDS)
    bare = json.loads(waiting.runs.bare(*command, PYTHONHASHSEED="0", MINE="1").out)

    waiting.start(*command, PYTHONHASHSEED="0", MINE="1")
    waiting.ready()
    found = json.loads(waiting.let_go(*WORDS).out)

    added = set(found.pop("modules")) - set(bare.pop("modules"))
    assert not {name for name in added if name.startswith(("torch", "sitecustomize"))}
    bare["environment"].pop("PYTHONPATH")  # ours comes before theirs
    assert found.pop("environment").items() >= bare.pop("environment").items()
    for facts in (found, bare):  # a test may itself have been handed some
        facts["descriptors"] = {n: kind for n, kind in facts["descriptors"].items() if int(n) < 9}
    assert found == bare
    assert bare["argv"][1:] == WORDS


def test_the_script_finds_torch_as_if_it_were_imported_now(waiting: Waiting) -> None:
    script = waiting.runs.script("""
        import atexit, importlib.util, sys, warnings
        atexit.register(print, "at the end")
        print(sys.argv, "torch" in sys.modules, importlib.util.find_spec("torch").origin)
        from torch.optim import optimizer
        import torch
        print(torch.optim.optimizer is optimizer, torch.__spec__.origin, vars(torch.__loader__))
        print([type(finder).__name__ for finder in sys.meta_path if "Held" in str(finder)])
        warnings.warn("mine")
        import nothing_of_the_kind
    """)

    ended = both(waiting, script, "a b", "--lr")

    assert (ended.code, ended.out.splitlines()[-1]) == (1, b"at the end")


def test_it_is_not_at_its_script_before_its_turn_and_reads_it_then(waiting: Waiting) -> None:
    script = waiting.runs.script("open('ran', 'w')")
    waiting.start(PYTHON, script)
    waiting.ready()
    time.sleep(0.3)
    assert not (waiting.runs.folder / "ran").exists()

    waiting.runs.script("import sys, os; print(sys.argv[1:], os.environ['A'], 'B' in os.environ)")
    ended = waiting.let_go("--resume", "x y", A="1")

    assert (ended.code, ended.out) == (0, b"['--resume', 'x y'] 1 False\n")


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("raise ValueError", ""),
        ("import os; os.environ['BY_IT'] = '1'", "changes what other imports see"),
        ("import sys; sys.path.append('x')", "changes what other imports see"),
        ("import os; os.open('/dev/zero', os.O_RDONLY)", "/dev/zero"),
        ("turn", ""),
    ],
)
def test_whatever_is_wrong_the_script_is_not_run(waiting: Waiting, fault: str, why: str) -> None:
    script = waiting.runs.script("open('ran', 'w')")
    if fault != "turn":
        waiting.runs.script(fault, "theirs/torch/__init__.py")
    ours = waiting.injection.site / "_rocsteady_inside/standby.py"
    ours.write_text(ours.read_text().replace('"/dev/kfd"', '"/dev/zero"'))  # there is none here
    process = waiting.start(PYTHON, script)
    report = waiting.ready()
    if fault == "turn":
        turn = os.open(waiting.injection.site / TURN, os.O_WRONLY)
        os.write(turn, b"no JSON")
        os.close(turn)
    end = time.monotonic() + WITHIN
    while process.is_waiting():
        assert time.monotonic() < end
        time.sleep(0.01)

    process.end()
    waiting.process = None

    assert why in str(report and report["against"])
    assert not (waiting.runs.folder / "ran").exists()


@pytest.mark.parametrize(
    ("text", "against"),
    [
        ("import json, logging, numbers, random; random.seed(0); print(1)", ""),
        ("import os; os.environ['OMP_NUM_THREADS'] = '1'", "sets a variable"),
        ("import warnings; warnings.simplefilter('ignore')", "filters warnings"),
        ("import warnings; warnings.resetwarnings()", "filters warnings"),
        ("import sys; sys.setprofile(lambda *_: None)", "is debugged or profiled"),
        (
            "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
            "chooses its processors",
        ),
        (
            "import sys; sys.setdlopenflags(sys.getdlopenflags() | 256)",
            "chooses how libraries are loaded",
        ),
        ("import os, time; os.fork() or (time.sleep(9), os._exit(0))", "starts other processes"),
        ("import sys; sys.modules['triton'] = None", "puts a module in place"),
        ("import builtins; f = __import__; builtins.__import__ = lambda *a: f(*a)",
         "has an import of its own"),
        ("import logging.config", "configures logging"),
        ("import io, sys; sys.stderr = io.StringIO()", "replaces its output"),
    ],
)  # fmt: skip
def test_what_a_script_does_before_torch_rules_it_out(
    waiting: Waiting, text: str, against: str
) -> None:
    if against == "chooses its processors" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("there is only one processor")

    assert waiting.recorded(PYTHON, waiting.runs.script(f"{text}\nimport torch")) == against


def test_other_modules_of_the_same_names_rule_it_out(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "train.py").touch()
    assert shadowing(tmp_path, ["own", "lib", "site"], ["lib", "site"], ["json"]) == ""
    assert shadowing(tmp_path, ["lib", "site"], ["site", "lib"], []) != ""
    (own / "json").mkdir()
    assert str(own / "json") in shadowing(tmp_path, ["own", "lib"], ["lib"], ["json"])
    assert str(own / "json") in shadowing(tmp_path, [str(own), "lib"], ["lib"], ["json"])
    assert shadowing(tmp_path, ["own/train.py", "lib"], ["lib"], []) != ""  # an archive
    assert shadowing(tmp_path, ["none", "lib"], ["lib"], ["json"]) == ""


def test_what_differs() -> None:
    assert changes({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == {"b": None, "c": "3"}


def test_memory(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 2000 kB\n")
    assert lacks_memory(1000 * 1024, tmp_path)
    assert not lacks_memory(600 * 1024, tmp_path)
