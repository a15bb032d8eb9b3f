"""Real children, and proof after each test that nothing of them is left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

if os.name == "nt":
    collect_ignore_glob = ["test_child.py", "test_child_*.py"]
else:
    from host_children import Children, bearing, our_descriptors

    @pytest.fixture
    def children(tmp_path: Path) -> Iterator[Children]:
        before = our_descriptors()
        made = Children(tmp_path)
        yield made
        for child in made.started:
            child.close()
        assert bearing(made.run_id) == []
        for child in made.started:
            assert not Path(f"/proc/{child.keeper}").exists()
        assert [t.name for t in threading.enumerate() if t.name == "rocsteady-pump"] == []
        deadline = time.monotonic() + 5  # another thread may just be starting a child
        while not our_descriptors() <= before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert our_descriptors() <= before
