"""Print an exported file as JSON, in an interpreter that has what reads it: YAML, a Dockerfile."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    """Print the documents of a YAML file, or the instructions of a Dockerfile."""
    path = Path(sys.argv[1])
    with path.open("rb") as file:
        if path.suffix == ".yaml":
            read = list(importlib.import_module("yaml").safe_load_all(file))
        else:
            parser = importlib.import_module("dockerfile_parse").DockerfileParser(fileobj=file)
            read = [(each["instruction"], each["value"]) for each in parser.structure]
    json.dump(read, sys.stdout)


if __name__ == "__main__":
    main()
