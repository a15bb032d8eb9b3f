"""Beside t02_nanogpt.py: --name=value overrides a constant."""
import sys
from ast import literal_eval

for arg in sys.argv[1:]:
    key, val = arg.removeprefix("--").split("=")
    if key not in globals():
        raise ValueError(f"Unknown config key: {key}")
    try:
        globals()[key] = literal_eval(val)
    except (SyntaxError, ValueError):
        globals()[key] = val
