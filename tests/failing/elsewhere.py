"""``rocsteady`` with less patience, on a machine that was recorded: it has GPUs, this one has none.

python elsewhere.py RECORDING run ...
"""

from __future__ import annotations

import sys
from pathlib import Path

import hurried

from rocsteady.cli import run
from rocsteady.cli.main import main
from rocsteady.doctor.machine import machine
from rocsteady.doctor.machine.recording import RecordedRoot, read_recording

if __name__ == "__main__":
    recording = read_recording(Path(sys.argv.pop(1)))
    hurried.hurry(run)
    setattr(machine, "DiskRoot", lambda **_: RecordedRoot(recording))  # noqa: B010 - not typed
    main()
