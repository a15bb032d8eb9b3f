"""Runs the functions called case_... of a script, each in a folder of its own, in one process.

    python run_cases.py SCRIPT FOLDER

A case may take its folder, and the list of what rocsteady logs meanwhile. One line of JSON a case:
its name, what it measured, and the traceback if it failed. Importing torch takes seconds; so they
share a process.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import sys
import traceback
import warnings
from pathlib import Path

warnings.simplefilter("error")


class Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def main() -> None:
    script, root = Path(sys.argv[1]), Path(sys.argv[2])
    sys.path[0] = str(script.parent)
    messages = Messages()
    logging.getLogger("rocsteady").addHandler(messages)
    logging.getLogger("rocsteady").propagate = False
    for name, case in list(vars(importlib.import_module(script.stem)).items()):
        if not name.startswith("case_"):
            continue
        folder = root / name
        folder.mkdir(parents=True)
        messages.texts.clear()
        error, measured = "", None
        try:
            measured = case(*(folder, messages.texts)[: len(inspect.signature(case).parameters)])
        except BaseException:  # noqa: BLE001 - DCP has one of its own; the other cases go on
            error = traceback.format_exc()
        sys.stdout.write(json.dumps({"case": name, "error": error, "measured": measured}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
