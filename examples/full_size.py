"""Train a job at its note's size under rocsteady for 20 minutes, with two faults at random moments.

python examples/full_size.py JOB prints a row for docs/benchmarks.md, and leaves the folder of the
run, with its report, for a look.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "stories"))

from story import ROCSTEADY, surroundings  # noqa: E402 - found by the line above

KINDS = ("backward", "memory")  # a hang, and an error


def read_options():
    parser = argparse.ArgumentParser(description=__doc__)
    jobs = sorted(path.parent.name for path in HERE.glob("*/evaluate.py"))
    parser.add_argument("job", choices=jobs)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--preset", default="note")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the faults")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    return parser.parse_args()


def main():
    options = read_options()
    place = Path(tempfile.mkdtemp(prefix=f"full-size-{options.job}-"))
    folder = place / options.job
    shutil.copytree(HERE / options.job, folder)
    environment = surroundings(place, options.python)
    if (folder / "make_data.py").exists():
        making = [options.python, "make_data.py", "--preset", options.preset]
        subprocess.run(making, cwd=folder, check=True)
    seconds = 60 * options.minutes
    draw = random.Random(options.seed)
    moments = sorted(time.time() + draw.uniform(0.2, 0.8) * seconds for _ in KINDS)
    environment["STORY_FAULTS"] = json.dumps(list(zip(KINDS, moments, strict=True)))
    train = ["python", "train.py", "--preset", options.preset]
    name = options.job.replace("_", "-")
    words = [*ROCSTEADY, "run", "--yes", "--name", name, "--", *train]
    run = subprocess.Popen(words, cwd=folder, env=environment)
    try:
        run.wait(seconds)
    except subprocess.TimeoutExpired:
        stop = [*ROCSTEADY, "stop", name]
        subprocess.run(stop, cwd=folder, env=environment, check=False)
        run.wait(300)
    asked = [*ROCSTEADY, "report", name, "--json"]
    said = subprocess.run(asked, cwd=folder, env=environment, check=True, capture_output=True)
    told = json.loads(said.stdout)
    steps = max(attempt["last_step"] or 0 for attempt in told["attempts"])
    failures = ", ".join(entry["failure"]["kind"] for entry in told["failures"]) or "none"
    print("| job | preset | ended | steps | attempts | failures | time lost |")
    print(f"| {options.job} | {options.preset} | exit code {run.returncode} | {steps} ", end="")
    print(f"| {len(told['attempts'])} | {failures} | {told['seconds_lost']:.0f} s |")
    print(f"The run is in {folder}.")


if __name__ == "__main__":
    main()
