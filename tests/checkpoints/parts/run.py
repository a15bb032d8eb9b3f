"""Runs the cases of a file in an interpreter that has torch, and tells of each how it went.

    python run.py exact.py

A case is a function whose name begins with ``case_``. What it returns is measured, and told.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> None:
    path = Path(sys.argv[1])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cases = sys.argv[2:] or [name for name in vars(module) if name.startswith("case_")]
    for name in cases:
        told: dict[str, Any] = {"case": name}
        try:
            told["measured"] = vars(module)[name]()
        except Exception:  # noqa: BLE001 - the next case is run all the same
            told["error"] = traceback.format_exc()
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
