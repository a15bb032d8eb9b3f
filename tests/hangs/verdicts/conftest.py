"""Lets tests and benchmarks share the simulator: pytest imports tests by path, not as packages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
