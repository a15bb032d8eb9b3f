"""A process that waits for its turn ends, prints and finds its world as one started just now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.dom
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("a standby is of Linux", allow_module_level=True)

from process_facts import ENDS, FACTS, SAYS, WORDS
from side_by_side import Ended, SideBySide, as_a_shell, left_behind
from standbys import CRASHES, Standbys
from torch_stand_in import stand_in_torch

from rocsteady.run.attempt.injection import Injection, inject, remove
from rocsteady.run.engines.standby import (
    ORDER,
    TURN,
    changes,
    lacks_memory,
    moved_ahead,
    on_battery,
    shadows,
)
from rocsteady.system.child import Start, WaitingCommand
from rocsteady.system.child_end import TerminalUse

PYTHON = sys.executable
WITHIN = 60.0  # seconds
OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
AHEAD = "decimal"  # is imported ahead, for torch is not in this environment
ASK = f"""
import importlib.util, json, sys
asked = (*sys.meta_path, *sys.path_hooks)
finders = [getattr(finder, "__name__", type(finder).__name__) for finder in asked]
print(json.dumps([finders, importlib.util.find_spec("{AHEAD}").origin]))
"""


class Waiting:
    """Starts commands that wait before they come to their script."""

    def __init__(self, runs: SideBySide) -> None:
        self.runs, self.name = runs, f"sb-{os.getpid()}-{time.monotonic_ns()}"
        finders, origin = json.loads(runs.bare(PYTHON, "-c", ASK).out)
        self.order = {"imports": {AHEAD: origin}, "finders": finders}
        self.injection: Injection = inject(f"{self.name}-1", {}, "test")
        self.process: WaitingCommand | None = None
        self.opened: tuple[int, ...] = ()

    def start(self, *command: str, **more: str) -> WaitingCommand:
        turn = self.injection.site / TURN
        os.mkfifo(turn)
        order = {**self.order, "turn": str(turn), "command": command}
        (self.injection.site / ORDER).write_text(json.dumps(order))
        existing = {**self.runs.environment, **more}
        added = self.injection.environment(existing, run_id=f"{self.name}-1", supervisor=1)
        out, err = (os.open(self.runs.folder.parent / name, OUTPUT) for name in ("out", "err"))
        given, ours = os.pipe()
        os.close(ours)
        self.begun = Start(
            command=command,
            environment={**existing, **added},
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

    def let_go(self, *command: str, **changed: str | None) -> Ended:
        """Give it its turn, and return its end."""
        assert self.process is not None
        turn = os.open(self.injection.site / TURN, os.O_WRONLY | os.O_NONBLOCK)
        child = self.process.watched(self.begun)
        self.process = None
        os.write(turn, json.dumps({"command": command, "environment": changed}).encode())
        os.close(turn)
        exited = child.wait(WITHIN)
        child.close()
        assert exited is not None
        code = exited.code if exited.code is not None else -(exited.signal or 0)
        out, err = ((self.runs.folder.parent / name).read_bytes() for name in ("out", "err"))
        return Ended(as_a_shell(code), out, err)

    def end(self) -> None:
        if self.process is not None:
            self.process.end()
        for descriptor in self.opened:
            os.close(descriptor)
        remove(self.injection.pages.parent)
        assert left_behind(self.name) == []


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    made = Waiting(SideBySide(tmp_path))
    yield made
    made.end()


def both(waiting: Waiting, *command: str, **more: str) -> Ended:
    """Run it bare, and from a standby; it must come to the same."""
    bare = waiting.runs.bare(*command, stdin=b"", **more)
    waiting.start(*command, **more)
    assert waiting.ready() is not None
    ended = waiting.let_go(*command)
    assert ended == bare
    return ended


@pytest.mark.parametrize("how", [how for how in ENDS if how != "by SIGSEGV"])
def test_ends_as_one_started_just_now(waiting: Waiting, how: str) -> None:
    text, code = ENDS[how]

    assert both(waiting, PYTHON, waiting.runs.script(text)).code == code


def test_every_fact_is_the_same_but_for_modules(waiting: Waiting) -> None:
    command = (PYTHON, Path(waiting.runs.script(FACTS)).name, *WORDS)
    bare = json.loads(waiting.runs.bare(*command, PYTHONHASHSEED="0", MINE="1").out)

    waiting.start(*command, PYTHONHASHSEED="0", MINE="1")
    waiting.ready()
    found = json.loads(waiting.let_go(*command).out)

    added = set(found.pop("modules")) - set(bare.pop("modules"))
    assert AHEAD not in added
    assert not {name for name in added if name.startswith("sitecustomize")}
    assert found.pop("environment").items() >= bare.pop("environment").items()
    for facts in (found, bare):  # a test may itself have been handed some
        facts["descriptors"] = {n: kind for n, kind in facts["descriptors"].items() if int(n) < 9}
    assert found == bare
    assert bare["argv"][1:] == WORDS


@pytest.mark.parametrize(
    "how",
    [
        ("train.py", "a"),
        ("-m", "train", "--", "a"),
        ("-m", "package", "a"),
        ("-m", "package.inner", "--name", "x"),
        ("-c", "import sys; print(sys.argv, sys.path, __name__)", "a b", "--", ""),
        ("-u", "-X", "dev", "-W", "error", "-O", "train.py"),
        ("folder",),
    ],
    ids=" ".join,
)
def test_a_program_is_itself_however_it_is_named(waiting: Waiting, how: tuple[str, ...]) -> None:
    for name in ("train.py", "package/__main__.py", "package/inner.py", "folder/__main__.py"):
        waiting.runs.script(SAYS, name)
    waiting.runs.script("", "package/__init__.py")

    assert both(waiting, PYTHON, *how).code == 0


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_find_the_same(waiting: Waiting, method: str) -> None:
    script = waiting.runs.script(f"""
        import multiprocessing, pickle, sys
        class Mine:
            pass
        def work(queue, value, thing):
            queue.put((value, sys.argv, __name__, type(thing).__module__))
            sys.exit(value)
        if __name__ == "__main__":
            print(pickle.loads(pickle.dumps(Mine())).__class__, pickle.dumps(Mine()))
            context = multiprocessing.get_context({method!r})
            queue = context.Queue()
            children = [context.Process(target=work, args=(queue, n, Mine())) for n in range(2)]
            for child in children: child.start()
            print(sorted(queue.get() for _ in children))
            for child in children: child.join()
            print([child.exitcode for child in children])
    """)

    assert both(waiting, PYTHON, script, "--lr", "0.1").out.endswith(b"[0, 1]\n")


def test_tracebacks_warnings_and_exit_handlers_are_the_same(waiting: Waiting) -> None:
    waiting.runs.script("def fail():\n    import nothing_of_the_kind", "mine.py")
    script = waiting.runs.script("""
        import atexit, decimal, sys, warnings
        atexit.register(print, "at the end")
        print(warnings.filters, decimal.__spec__.origin, vars(decimal.__loader__))
        print(decimal is sys.modules["decimal"])
        warnings.warn("mine")
        import mine
        try: 1 / 0
        except ZeroDivisionError as error: mine.fail()
    """)

    ended = both(waiting, PYTHON, script)

    assert (ended.code, ended.out.splitlines()[-1]) == (1, b"at the end")


def test_it_is_not_at_its_script_before_its_turn_and_reads_it_then(waiting: Waiting) -> None:
    script = waiting.runs.script("open('ran', 'w')")
    waiting.start(PYTHON, script)
    waiting.ready()
    time.sleep(0.3)
    assert not (waiting.runs.folder / "ran").exists()

    waiting.runs.script("import sys, os; print(sys.argv[1:], os.environ['A'], 'B' in os.environ)")
    ended = waiting.let_go(PYTHON, script, "--resume", "x y", A="1", B=None)

    assert (ended.code, ended.out) == (0, b"['--resume', 'x y'] 1 False\n")


@pytest.mark.parametrize("fault", ["missing", "other", "finders", "turn"])
def test_whatever_is_wrong_the_script_is_not_run(waiting: Waiting, fault: str) -> None:
    script = waiting.runs.script("open('ran', 'w')")
    if fault in ("missing", "other"):
        waiting.order["imports"] = {"nothing_of_the_kind" if fault == "missing" else AHEAD: "x"}
    elif fault == "finders":
        waiting.order["finders"] = []
    process = waiting.start(PYTHON, script)
    waiting.ready()
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

    assert not (waiting.runs.folder / "ran").exists()


def test_an_import_that_opens_a_device_ends_it(waiting: Waiting) -> None:
    script = waiting.runs.script("open('ran', 'w')")
    opens = waiting.runs.script("kept = open('/dev/zero')", "theirs/opens.py")
    waiting.order["imports"] = {"opens": opens}
    ours = waiting.injection.site / "_rocsteady_inside/standby.py"
    ours.write_text(ours.read_text().replace('"/dev/kfd"', '"/dev/zero"'))  # there is none here

    process = waiting.start(PYTHON, script, PYTHONPATH=str(waiting.runs.folder / "theirs"))
    report = waiting.ready()

    assert report is not None
    assert "/dev/zero" in str(report["against"])
    process.end()
    waiting.process = None
    assert not (waiting.runs.folder / "ran").exists()


def test_whoever_imports_a_part_imports_the_whole(waiting: Waiting) -> None:
    script = waiting.runs.script("""
        import sys
        print("xml.dom" in sys.modules, "xml.dom.domreg" in sys.modules)
        from xml.dom.domreg import registered
        print("xml.dom" in sys.modules, sys.modules["xml.dom"].domreg.registered is registered)
    """)
    waiting.order["imports"] = {"xml.dom": xml.dom.__file__}

    assert both(waiting, PYTHON, script).code == 0


def test_a_variable_that_an_import_sets_is_set_when_the_script_imports_it(waiting: Waiting) -> None:
    script = waiting.runs.script("""
        import os
        print("BY_IT" in os.environ)
        import sets
        print(os.environ["BY_IT"])
    """)
    sets = waiting.runs.script("import os; os.environ['BY_IT'] = '1'", "theirs/sets.py")
    waiting.order["imports"] = {"sets": sets}

    both(waiting, PYTHON, script, PYTHONPATH=str(waiting.runs.folder / "theirs"))


def test_what_the_users_sitecustomize_imports_is_not_imported_ahead(waiting: Waiting) -> None:
    script = waiting.runs.script("open('ran', 'w')")
    waiting.runs.script(f"import {AHEAD}", "theirs/sitecustomize.py")

    process = waiting.start(PYTHON, script, PYTHONPATH=str(waiting.runs.folder / "theirs"))
    report = waiting.ready()

    assert report is not None
    assert report["against"]
    process.end()
    waiting.process = None
    assert not (waiting.runs.folder / "ran").exists()


def test_what_differs_and_what_shadows(tmp_path: Path) -> None:
    assert changes({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == {"b": None, "c": "3"}
    (tmp_path / "json").mkdir()
    (tmp_path / "random.txt").touch()
    assert shadows(tmp_path, ["json", "random"], []) == ""
    assert shadows(tmp_path, [], ["json"]) == str(tmp_path / "json")
    (tmp_path / "json" / "__init__.py").touch()
    assert shadows(tmp_path, ["json"], []) == str(tmp_path / "json")
    (tmp_path / "random.a").touch()
    (tmp_path / "random.py").touch()
    assert shadows(tmp_path, ["random"], []) == str(tmp_path / "random.py")
    assert shadows(tmp_path / "random.py", ["x"], [])  # an archive has no folder to look at
    assert shadows(tmp_path / "none", ["json"], []) == ""


def test_folders_that_are_looked_at_earlier() -> None:
    assert moved_ahead(["lib", "site"], ["script", "lib", "site", "more"]) == ["script", "more"]
    assert moved_ahead(["lib", "site"], ["lib", "site"]) == []
    assert moved_ahead(["lib", "site", "own"], ["own", "lib", "site", "own"]) == ["own"]


def test_memory_and_battery(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 2000 kB\n")
    assert lacks_memory(1000 * 1024, tmp_path)
    assert not lacks_memory(600 * 1024, tmp_path)
    assert not on_battery(tmp_path)
    supply = tmp_path / "sys/class/power_supply/AC"
    supply.mkdir(parents=True)
    (supply / "type").write_text("Mains\n")
    (supply / "online").write_text("0\n")
    assert on_battery(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [True, False])
def test_a_command_that_trains_in_another_process_has_none(
    tmp_path: Path, *, launcher: bool
) -> None:
    runs = SideBySide(tmp_path)
    torch = stand_in_torch(runs)
    runs.script("""
        import time
        from torch.optim import optimizer
        for _ in range(150):
            optimizer.step()
            time.sleep(0.05)
    """)
    runs.script(
        "import subprocess, sys, torch; subprocess.run([sys.executable, 'train.py'])", "l.py"
    )
    command = (PYTHON, "l.py" if launcher else "train.py")

    with subprocess.Popen(
        [*runs.watching("--standby"), *command],
        cwd=runs.folder,
        env={**runs.environment, "PYTHONPATH": torch},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as run:
        started = False
        while run.poll() is None:
            standbys = Path("/dev/shm").glob(f"rocsteady-{runs.name}-*-2/pages/*.ready")
            started = started or any(standbys)
            time.sleep(0.1)

    assert (run.returncode, started) == (0, not launcher)
    assert left_behind(runs.name) == []


@pytest.mark.slow
def test_what_torch_itself_sets_does_not_rule_out_the_next_one(tmp_path: Path) -> None:
    standbys = Standbys(tmp_path)
    script = standbys.runs.script(f"{CRASHES}    crash_if_asked()")

    ended = standbys.watched(PYTHON, script, crashes=2, PYTHONPATH=stand_in_torch(standbys.runs))

    assert (ended.code, standbys.used) == (0, 2), standbys.notes
