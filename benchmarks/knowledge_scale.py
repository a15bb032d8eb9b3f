"""How loading and matching grow with the knowledge base, as TOML and as JSON.

    python benchmarks/knowledge_scale.py

The rules are the shipped ones, again and again under new ids, in one file. Matching is over one
recorded machine. The aim is one file of 10,000 rules, fetched as JSON, that costs a doctor's run
no more than a second or two; TOML is what people write, a few hundred rules of it.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from rocsteady.doctor.checks import CHECKS
from rocsteady.doctor.diagnosis import diagnose
from rocsteady.doctor.facts import FACTS
from rocsteady.doctor.knowledge.reader import DATA, Knowledge, load_knowledge
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.doctor.machine.recording import RecordedRoot, read_recording

SIZES = (32, 1_000, 10_000)
ROUNDS = 5
MACHINE = Path(__file__).parents[1] / "tests" / "machines" / "rx7900xt-pair.json"


def rule_texts() -> list[str]:
    """Return the shipped rules, each as the TOML that a person wrote."""
    files = sorted((DATA / "rules").glob("*.toml"))
    parts = (path.read_text(encoding="utf-8").split("[[rule]]\n")[1:] for path in files)
    return [f"[[rule]]\n{text}" for text in itertools.chain.from_iterable(parts)]


def write_base(folder: Path, count: int, *, as_json: bool) -> Path:
    """Write a knowledge base of so many rules."""
    shutil.copytree(DATA, folder, ignore=shutil.ignore_patterns("rules"))
    (folder / "rules").mkdir()
    texts = itertools.islice(itertools.cycle(rule_texts()), count)
    text = "".join(
        each.replace('\nid = "', f'\nid = "n{number}-', 1) for number, each in enumerate(texts)
    )
    path = folder / "rules" / "all.toml"
    path.write_text(text, encoding="utf-8")
    if as_json:
        (folder / "rules" / "all.json").write_bytes(msgspec.json.encode(msgspec.toml.decode(text)))
        path.unlink()
    return folder


def median(action: Callable[[], object], rounds: int) -> float:
    """Return the seconds of processor time that an action takes; it waits for nothing."""
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return statistics.median(times)


def load(folder: Path) -> Knowledge:
    """Load with everything validated, as the doctor does."""
    return load_knowledge(folder, facts=FACTS, checks=CHECKS)


def measure(count: int, machine: Machine, *, as_json: bool, rounds: int) -> tuple[float, float]:
    """Return the seconds to load and to diagnose."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_base(Path(scratch) / "data", count, as_json=as_json)
        loading = median(lambda: load(folder), rounds)
        knowledge = load(folder)
    return loading, median(lambda: diagnose(machine, knowledge), rounds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    machine, _ = examine(RecordedRoot(read_recording(MACHINE)), load_knowledge().variables)
    print(f"processor time, medians of {rounds}; ratio to {SIZES[0]} rules; microseconds a rule")
    print(f"{'':4} {'rules':>6}   {'load':^34}   {'diagnose':^34}")
    for kind in ("toml", "json"):
        first: tuple[float, float] | None = None
        for count in SIZES:
            times = measure(count, machine, as_json=kind == "json", rounds=rounds)
            first = first or times
            shown = (
                f"{seconds * 1e3:9.1f} ms {seconds / base:8.1f} x {seconds / count * 1e6:8.1f} us"
                for seconds, base in zip(times, first, strict=True)
            )
            print(f"{kind:4} {count:6,}   {'   '.join(shown)}")


if __name__ == "__main__":
    main()
