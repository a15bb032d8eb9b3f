"""Let SkyPilot itself read and validate tasks, in an interpreter that has it; no cloud is enabled.

    HOME=<an empty folder> <that interpreter> check_sky.py TASK...

Prints what SkyPilot understood, as JSON. SkyPilot wants its list of accelerators, which it would
fetch; a short one is put where it looks.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

ACCELERATORS = """\
AcceleratorName,Clouds
A100-80GB,"['RunPod']"
MI300X,"['RunPod']"
RTX4090,"['RunPod', 'Vast']"
"""
MEMORY = "GPU,MemoryMiB,Manufacturer\n"


def main() -> None:
    """Validate each task as `sky launch` does before it looks for machines."""
    common = Path.home() / ".sky" / "catalogs" / "v8" / "common"
    common.mkdir(parents=True, exist_ok=True)
    (common / "accelerators.csv").write_text(ACCELERATORS)
    (common / "metadata.csv").write_text(MEMORY)
    sky = importlib.import_module("sky")
    understood = []
    for path in sys.argv[1:]:
        task = sky.Task.from_yaml(path)
        task.validate()
        (resources,) = task.resources
        understood.append(
            {
                "name": task.name,
                "run": task.run,
                "setup": task.setup,
                "cloud": str(resources.cloud),
                "accelerators": resources.accelerators,
                "image": resources.extract_docker_image(),
                "down": resources.autostop_config.down,
                "recovery": resources.job_recovery,
                "mounts": {
                    target: [storage.source, storage.mode.value]
                    for target, storage in task.storage_mounts.items()
                },
            }
        )
    Path(sys.argv[1] + ".json").write_text(json.dumps(understood), encoding="utf-8")


if __name__ == "__main__":
    main()
