"""``rocsteady`` as it would be typed on a recorded machine: python on_machine.py RECORDING plan ...

Only what is read of the machine is the recording's; processes, files and clocks are of here.
"""

import sys
from pathlib import Path

from rocsteady.doctor.machine.recording import RecordedRoot, read_recording
from rocsteady.system import disk_root

if __name__ == "__main__":
    recording = read_recording(Path(sys.argv.pop(1)))
    disk_root.DiskRoot = lambda *_, **__: RecordedRoot(recording)
    from rocsteady.cli.main import main  # it imports DiskRoot

    main()
