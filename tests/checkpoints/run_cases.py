"""Runs the functions called case_... of a script, each in a folder of its own, in one process.

    python run_cases.py SCRIPT FOLDER

A case gets its folder and the list of what rocsteady logs meanwhile. One line of JSON a case: its
name, and the traceback if it failed. Importing torch takes seconds; so they share a process.
"""

from __future__ import annotations

import json
import logging
import runpy
import sys
import traceback
import warnings
from pathlib import Path

warnings.simplefilter("error")


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def main() -> None:
    script, root = Path(sys.argv[1]), Path(sys.argv[2])
    kept = Kept()
    logging.getLogger("rocsteady").addHandler(kept)
    logging.getLogger("rocsteady").propagate = False
    for name, case in runpy.run_path(str(script)).items():
        if not name.startswith("case_"):
            continue
        folder = root / name
        folder.mkdir(parents=True)
        kept.said.clear()
        error = ""
        try:
            case(folder, kept.said)
        except BaseException:  # noqa: BLE001 - DCP has one of its own; the other cases go on
            error = traceback.format_exc()
        sys.stdout.write(json.dumps({"case": name, "error": error}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
