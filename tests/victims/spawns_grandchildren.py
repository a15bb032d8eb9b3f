"""Starts many processes below itself and then trains: 10 children with 20 children each.

`spawns_grandchildren.py [--children N] [--each N] [--new-session] [--ignore-sigterm]`. They sleep,
and stay when the trainer dies; `grandchildren ready` is printed when all are there. A person sees
what a launcher of environments or servers leaves behind.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from knobs import STEPS
from ordinary import make_loader, make_model, make_optimizer, train

GRANDCHILD = """
import signal, sys, time
if "--ignore-sigterm" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""
CHILD = """
import subprocess, sys
grandchild, count, session, *flags = sys.argv[1:]
command = [sys.executable, "-c", grandchild, *flags]
own = session == "True"
started = [
    subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=own)
    for _ in range(int(count))
]
for process in started:
    process.stdout.readline()
print("ready", flush=True)
for process in started:
    process.wait()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="a training run with many processes")
    parser.add_argument("--children", type=int, default=10)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--new-session", action="store_true")
    parser.add_argument("--ignore-sigterm", action="store_true")
    args = parser.parse_args()
    flags = ["--ignore-sigterm"] if args.ignore_sigterm else []
    command = [sys.executable, "-c", CHILD, GRANDCHILD, str(args.each), str(args.new_session)]
    children = [
        subprocess.Popen([*command, *flags], stdout=subprocess.PIPE) for _ in range(args.children)
    ]
    for child in children:
        assert child.stdout
        child.stdout.readline()
    print("grandchildren ready", flush=True)
    model = make_model()
    train(model, make_optimizer(model), make_loader(10 * STEPS))
    print("trained; the others stay", flush=True)


if __name__ == "__main__":
    main()
