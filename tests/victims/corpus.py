"""Runs the corpus of healthy lookalikes and of real hangs against ``rocsteady run``, from outside.

    python tests/victims/corpus.py --python PATH-OF-A-PYTHON-WITH-TORCH

runs all of it at full length (about 30 minutes on two cores) and prints a row for each family, with
the held-out half separate. ``--bare`` runs the scripts without rocsteady: the healthy ones must end
and the others must not.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from lookalikes.base import Case
from lookalikes.catalogue import half_of, lookalikes, part_of, real_hangs
from lookalikes.runner import ROCSTEADY, Result, Setting, build, end_all, run


def chosen(arguments: argparse.Namespace) -> list[Case]:
    cases = {"all": lookalikes() + real_hangs(), "healthy": lookalikes(), "hangs": real_hangs()}[
        arguments.kind
    ]
    if arguments.part:
        index, parts = (int(number) for number in arguments.part.split("/"))
        cases = part_of(cases, index - 1, parts)
    cases = [
        case
        for case in cases
        if (not arguments.half or half_of(case) == arguments.half)
        and (not arguments.only or any(fnmatch.fnmatch(case.name, p) for p in arguments.only))
    ]
    cases += [case for case in cases if case.expect == "hung"] * (arguments.repeat - 1)
    return sorted(cases, key=lambda case: -case.seconds(short=arguments.short))


def table(results: list[Result]) -> Iterator[str]:
    healthy = [result for result in results if result.expect == "healthy"]
    yield f"{'healthy':<21}{'runs':>5}{'killed':>8}{'called done':>14}{'exit code':>11}{'other':>7}"
    for family in [*sorted({result.family for result in healthy}), "all"]:
        of = [result for result in healthy if family in (result.family, "all")]
        killed, codes = sum(r.killed for r in of), sum(r.code_wrong and not r.killed for r in of)
        other = sum(bool(r.wrong) for r in of) - killed - codes
        done = sum(r.falsely_done for r in of)
        yield f"{family:<21}{len(of):>5}{killed:>8}{done:>14}{codes:>11}{other:>7}"
    if healthy and not any(result.killed for result in healthy):
        yield f"0 killed in {len(healthy)}: below {300 / len(healthy):.2f} % of such runs (95 %)"
    hangs = [result for result in results if result.expect != "healthy"]
    yield f"{'hangs':<21}{'runs':>5}{'as expected':>13}{'median':>8}{'most':>7}{'line right':>12}"
    for family in [*sorted({result.family for result in hangs}), "all"]:
        of = [result for result in hangs if family in (result.family, "all")]
        right = sum(not result.wrong for result in of)
        proven = [r.detected for r in of if r.expect == "hung" and r.detected is not None]
        median = f"{statistics.median(proven):.1f} s" if proven else "-"
        most = f"{max(proven):.1f} s" if proven else "-"
        lines = [result.located for result in of if result.located is not None]
        line = f"{sum(lines)}/{len(lines)}"
        yield f"{family:<21}{len(of):>5}{right:>13}{median:>8}{most:>7}{line:>12}"


@contextmanager
def load(processes: int) -> Iterator[None]:
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter with torch")
    parser.add_argument("--rocsteady", help="the program to examine; default: this interpreter's")
    parser.add_argument("--kind", choices=("all", "healthy", "hangs"), default="all")
    parser.add_argument("--half", choices=("tuning", "held-out"))
    parser.add_argument("--part", help="such as 3/10")
    parser.add_argument("--only", action="append", default=[], help="a pattern of names")
    parser.add_argument("--repeat", type=int, default=1, help="of hangs that must be proven")
    parser.add_argument("--load", type=int, default=0, help="busy processes to start")
    parser.add_argument("--jobs", type=int, default=6, help="how many run at once")
    parser.add_argument("--short", action="store_true", help="with shorter waits, as in CI")
    parser.add_argument("--bare", action="store_true", help="without rocsteady")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    signal.signal(signal.SIGTERM, end_all)
    cases, results = chosen(arguments), list[Result]()
    with tempfile.TemporaryDirectory() as libraries, load(arguments.load):
        build(Path(libraries))
        setting = Setting(
            python=arguments.python,
            rocsteady=(arguments.rocsteady,) if arguments.rocsteady else ROCSTEADY,
            libraries=Path(libraries),
            short=arguments.short,
            bare=arguments.bare,
            grace=600 if arguments.load else 200,
        )
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for done in as_completed([pool.submit(run, case, setting) for case in cases]):
                result = done.result()
                results.append(result)
                if arguments.json:  # after each: the corpus may be interrupted
                    texts = [dataclasses.asdict(each) for each in results]
                    arguments.json.write_text(json.dumps(texts, indent=1))
                found = "" if result.detected is None else f" after {result.detected:.1f} s"
                row = (
                    f"{result.name:<48}{result.seconds:5.0f} s  {','.join(result.verdicts)}{found}"
                )
                row += "  line not named" if result.located is False else ""
                print(
                    f"{'WRONG' if result.wrong else 'ok':<6}{row}  {result.wrong}".rstrip(),
                    flush=True,
                )
    for half in ("tuning", "held-out"):
        of = [result for result in results if result.half == half]
        if of:
            print(f"\n{half} half\n" + "\n".join(table(of)))
    sys.exit(any(result.wrong for result in results))


if __name__ == "__main__":
    main()
