"""Read YAML back with PyYAML, in an interpreter that has it: lines of JSON with text and value."""

from __future__ import annotations

import importlib
import json
import sys


def main() -> None:
    """Compare each value with what its text is read as."""
    yaml = importlib.import_module("yaml")
    for line in sys.stdin:
        case = json.loads(line)
        read = yaml.safe_load(case["text"])
        if read != case["value"]:
            sys.exit(f"{case['text']}\nis read as {read!r}, not as {case['value']!r}")


if __name__ == "__main__":
    main()
