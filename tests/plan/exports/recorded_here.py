"""``rocsteady`` as it would be typed on a recorded machine.

python recorded_here.py RECORDING plan --export slurm
"""

from __future__ import annotations

import sys
from pathlib import Path

from rocsteady.doctor.machine.recording import RecordedRoot, read_recording
from rocsteady.system import disk_root


def main() -> None:
    """Put the recording in the place of this machine before anything else is imported."""
    recording = read_recording(Path(sys.argv.pop(1)))
    disk_root.DiskRoot = lambda *_, **__: RecordedRoot(recording)  # type: ignore[misc, assignment]
    from rocsteady.cli.main import main as run  # noqa: PLC0415 - it imports DiskRoot

    run()


if __name__ == "__main__":
    main()
