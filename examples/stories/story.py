"""Replay a field note with real commands: a recorded machine, its job, and its faults.

What a GPU did is brought about by faults/sitecustomize.py, since this needs none. Each step's exit
code and essential lines are checked; a story that misses one ends with exit code 1.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROCSTEADY = (sys.executable, "-m", "rocsteady")
ON_MACHINE = (sys.executable, str(HERE / "on_machine.py"))
NOTES = "[The field notes](../field-notes.md)."
DIGEST = "Digest of this page: "
WITHIN = 3600.0  # seconds for one command
LONGEST = 30  # lines of one command's output on a page
OF_A_RANK = re.compile(r"rank \d+: \d+ steps, [\d.]+ s of processor time")


@dataclass(frozen=True, kw_only=True)
class Step:
    """A command, and what must come of it."""

    words: str  # as one types them
    lines: tuple[str, ...]  # of its output, white space aside
    code: int = 0
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Story:
    """A note: its job, its machine, its faults, and what its author did by hand."""

    note: str
    title: str
    example: str
    machine: str  # a recording in tests/machines
    changes: tuple[tuple[str, str], ...] = ()  # to the text of the recording
    by_hand: str  # in turn a line of what the author did, and one of what does it now
    took: str  # them
    job: str  # the note's own deadline, budget and variants: the head of the job file
    data: str = ""  # arguments of make_data.py; none: the job makes its own
    launcher: str = "python"
    small: str  # arguments of train.py
    full: str
    faults: tuple[tuple[str, int, int], ...]  # kind; step of an attempt: small, full
    ends: str  # the option of the plan with which the run ends: its id
    goes_down_at: int = 0  # a step at which the whole machine does
    before: tuple[Step, ...]  # the run
    run: tuple[str, ...]  # lines of rocsteady's
    report: tuple[str, ...] = ()
    after: tuple[Step, ...] = ()  # the report

    def pairs(self):
        lines = [line.strip() for line in self.by_hand.strip().splitlines()]
        return list(zip(lines[::2], lines[1::2], strict=True))


PLAN = (
    Step(
        words="plan --yes --trial 3s --within 5m",
        lines=("Recommended: option 1",),
        why="The options of the note's machine, with trials of its job under its fault.",
    ),
    Step(
        words="plan --report decision.md",
        lines=("wrote decision.md",),
        why="The decision page of this plan.",
    ),
)


def surroundings(place, python):
    """Return the variables of a command: a home of its own, and faults that can be asked for."""
    (place / "home").mkdir()
    (place / "faults").mkdir()
    return {
        **{name: os.environ[name] for name in os.environ if not name.startswith("XDG_")},
        "HOME": str(place / "home"),
        "PATH": os.pathsep.join((str(Path(python).parent), os.environ["PATH"])),
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(HERE / "faults"),
        "STORY_MARKS": str(place / "faults"),
    }


class Telling:
    """Carries a story out in a folder of its own, and keeps what was said."""

    def __init__(self, story, place, options):
        self.story, self.options = story, options
        self.folder = place / story.example
        shutil.copytree(ROOT / "examples" / story.example, self.folder)
        self.machine = place / f"{story.machine}.json"
        text = (ROOT / "tests" / "machines" / self.machine.name).read_text()
        for old, new in story.changes:
            if old not in text:
                raise SystemExit(f"{self.machine.name} does not contain {old}")
            text = text.replace(old, new)
        self.machine.write_text(text)
        faults = [(kind, small if options.small else full) for kind, small, full in story.faults]
        self.environment = surroundings(place, options.python)
        self.faults = {"STORY_FAULTS": json.dumps(faults)}
        self.told = []  # command, output
        self.end = ""  # the option that the run ended with, and how
        self.missing = []
        job = self.folder / "rocsteady.toml"
        own = ("command", "total", "deadline", "budget")
        plain = job.read_text().partition("[variants.")[0]
        kept = [line for line in plain.splitlines() if not line.startswith(own)]
        command = f"command = {json.dumps(shlex.split(self.train()))}"
        stated = story.job.strip().splitlines()  # the total is that of the small size
        stated = [each for each in stated if options.small or not each.startswith("total")]
        job.write_text("\n".join([command, *stated, *kept]) + "\n")
        there = json.loads(text)["environment"]
        users = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "SHELL", "USER", "VIRTUAL_ENV")
        self.environment |= {name: there[name] for name in there if name not in users}

    def train(self):
        """Return the words of the training command."""
        small = self.story.small if self.options.small else self.story.full
        return f"{self.story.launcher} train.py {small}"

    def start(self, words, output, **more):
        words = [word.replace("MACHINE", str(self.machine)) for word in shlex.split(words)]
        here = words[0] in ("status", "watch", "report")  # they look at processes of here
        program = ROCSTEADY if here else (*ON_MACHINE, str(self.machine))
        return subprocess.Popen(
            [*program, *words], cwd=self.folder, env=self.environment | more,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def carry_out(self, step):
        """Run one command to its end and check it."""
        child = self.start(step.words, subprocess.PIPE, **self.faults)
        said = child.communicate(timeout=WITHIN)[0].decode(errors="replace")
        if step.words.startswith("run "):
            said = own_lines(said)
        page = self.folder / step.words.split()[-1]
        if "--report" in step.words and page.exists():
            said += page.read_text()
        self.tell(step, said, child.returncode)

    def tell(self, step, said, code):
        """Print what a command said, and whether it is what it must be."""
        said = said.replace(f"{self.folder}/", "").replace(f"{self.folder.parent}/", "")
        shown = step.words.replace("MACHINE", self.machine.name)
        print(f"\n$ rocsteady {shown}\n{said.rstrip()}")
        plain = " ".join(said.split())
        missing = [line for line in step.lines if not re.search(line, plain)]
        if code != step.code:
            missing.append(f"exit code {step.code}; it was {code}")
        for line in missing:
            print(f"MISSING in {step.words.split()[0]}: {line}")
        if not missing:
            found = "; ".join(re.search(line, plain).group() for line in step.lines)
            print(f"[checked: exit code {code}; {found}]")
        self.missing += missing
        self.told.append((shown, said, step.why))

    def run(self):
        """Run the job through its failures, with a second terminal that watches it in text."""
        name = f"note-{self.story.note.lower()}"
        words = f"run --yes --name {name} --plan 1"
        if self.story.goes_down_at:  # the run of before goes on
            name, words = "gpu", "run --yes --resume gpu"
        log = self.folder.parent / "run.txt"
        with log.open("ab") as output:
            child = self.start(words, output, **self.faults)
            self.until((self.folder / ".rocsteady" / "runs" / name).exists, child)
            watch = self.start(f"watch {name} --interval 5s", subprocess.PIPE)
            child.wait(WITHIN)
        watched = watch.communicate(timeout=WITHIN)[0].decode(errors="replace")
        own = own_lines(log.read_text(errors="replace"))
        why = "rocsteady's lines, and the result; what else the script prints is left out."
        self.tell(Step(words=words, lines=self.story.run, why=why), own, child.returncode)
        step = Step(words=f"watch {name} --interval 5s", lines=(rf"{name}: done",))
        self.tell(step, watched, watch.returncode)
        self.carry_out(Step(words=f"report {name}", lines=self.story.report))
        self.check_end(name)
        for step in self.story.after:
            self.carry_out(step)

    def check_end(self, name):
        """See that the run is done, by the option of the plan that the note's author would want."""
        (saved,) = self.folder.parent.glob("home/.local/state/rocsteady/plans/*/plan.json")
        options = json.loads(saved.read_text())["options"]
        said = self.start(f"report {name} --json", subprocess.PIPE).communicate()[0]
        story = json.loads(said)
        last = story["attempts"][-1]["strategy"]
        decisions = [each["decision"] for each in story["decisions"]]
        tried = [each.get("remedy", "") for each in decisions if each["next"] != "end"]
        used = next((it["id"] for it in options if it["strategy"] == last), (tried or ["?"])[-1])
        self.end = f"{used}: {story['run']['outcome']}"
        if self.end not in [f"{it}: done" for it in self.story.ends.split(" or ")]:
            self.missing.append(f"ends with {self.story.ends}: done; it was {self.end}")

    def go_down(self, name):
        """Do what a crash of the machine does: every process ends, and the next boot is another."""
        words = f"run --yes --anyway --name {name}"
        log = self.folder.parent / "crash.txt"
        with log.open("wb") as output:
            child = self.start(words, output, **self.faults)
        self.until(lambda: self.step(name) >= self.story.goes_down_at, child)
        child.send_signal(signal.SIGKILL)
        child.wait()
        time.sleep(15)  # until its keeper has ended the training
        with (
            closing(sqlite3.connect(self.folder / ".rocsteady" / "journal.db")) as journal,
            journal,
        ):
            for table in ("runs", "attempts", "intents"):
                journal.execute(f"UPDATE {table} SET boot_id = 'the boot before'")  # noqa: S608
        why = "As the author did it: on the GPU. Then the machine goes down."
        said = own_lines(log.read_text(errors="replace"))
        self.tell(
            Step(words=words, lines=(), code=child.returncode, why=why), said, child.returncode
        )

    def step(self, name):
        said = self.start("status --json", subprocess.PIPE).communicate()[0]
        runs = json.loads(said)["runs"] if said.startswith(b"{") else []
        return max((line["step"] or 0 for line in runs if line["run"]["name"] == name), default=0)

    @staticmethod
    def until(true, child):
        end = time.monotonic() + WITHIN
        while not true() and child.poll() is None and time.monotonic() < end:
            time.sleep(0.5)

    def page(self):
        """Return the story as a page of the docs."""
        story = self.story
        size = "--small" if self.options.small else ""
        rows = "\n".join(f"| {then} | {now} |" for then, now in story.pairs())
        parts = [
            f"# {story.title} (note {story.note})",
            "Made from the output of "
            f"`python examples/stories/{story.note.lower()}.py {size}`".rstrip()
            + ". The machine is a recording and "
            "what its GPU did is injected (by a `sitecustomize.py`): nothing here is confirmed on"
            " hardware.",
            f"The author needed {story.took}. The commands below took {self.seconds:.0f} s.",
            f"| by hand | now |\n|---|---|\n{rows}",
            "What the note took for true, and what sources say: " + NOTES,
            "## The commands",
        ]
        for words, said, why in self.told:
            lines = said.rstrip().splitlines()
            left = [f"... ({len(lines) - LONGEST} more lines)"] if len(lines) > LONGEST else []
            text = "\n".join([*lines[:LONGEST], *left])
            parts.append(f"{why}\n\n```text\n$ rocsteady {words}\n{text}\n```".strip())
        parts.append(f"The run ended with {self.end}.")
        text = "\n\n".join(parts) + "\n"
        return f"{text}\n{DIGEST}`{digest(text)}`\n"


def own_lines(said):
    """Return rocsteady's lines, and the result; what else the script prints is left out."""
    kept = []
    for line in said.splitlines():
        if re.match(r"rocsteady: |(\S+ )?done: ", line):
            kept.append(line)
        kept += OF_A_RANK.findall(line)  # two ranks may write into one line
    return "\n".join(kept)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def read_options(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="in about a minute")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--page", type=Path, help="also write the story as Markdown")
    return parser.parse_args(arguments)


def tell(story, options=None):
    """Carry a story out; exit code 0 if every step did what it must."""
    options = options or read_options()
    print(textwrap.fill(f"{story.title} (note {story.note}). Its author needed {story.took}.", 100))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="story-") as place:
        telling = Telling(story, Path(place).resolve(), options)
        if story.data:
            making = [options.python, "make_data.py", *shlex.split(story.data)]
            subprocess.run(making, cwd=telling.folder, check=True, stdout=subprocess.DEVNULL)
        if story.goes_down_at:
            telling.go_down("gpu")
        for step in story.before:
            telling.carry_out(step)
        telling.run()
    telling.seconds = time.monotonic() - began
    print("\nBy hand, and now:")
    for then, now in story.pairs():
        print(textwrap.fill(f"{then} -> {now}", 100, initial_indent="  ", subsequent_indent="    "))
    print(f"The author needed {story.took}. These commands took {telling.seconds:.0f} s.")
    if options.page:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(telling.page())
    if telling.missing:
        raise SystemExit(f"{len(telling.missing)} of the effects are missing: {telling.missing}")
