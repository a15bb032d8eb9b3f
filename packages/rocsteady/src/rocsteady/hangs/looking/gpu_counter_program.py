"""Read the counters of one GPU and print them as JSON. Run as a program of its own, by path.

These files make the driver ask the device, and a device that hangs takes the one who asks with it:
so this is never imported by the supervisor, needs nothing but the standard library, and is thrown
away if it does not come back.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

WHOLE = {
    "busy_percent": "gpu_busy_percent",
    "vram_used_bytes": "mem_info_vram_used",
    "vram_total_bytes": "mem_info_vram_total",
    "gtt_used_bytes": "mem_info_gtt_used",
    "gtt_total_bytes": "mem_info_gtt_total",
}


def number(path: Path) -> int | None:
    try:
        return int(path.read_text().strip())
    except (OSError, ValueError):
        return None


def word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def reading(device: Path) -> dict[str, object]:
    found: dict[str, object] = {
        name: value for name, file in WHOLE.items() if (value := number(device / file)) is not None
    }
    temperatures = {}
    for monitor in sorted(device.glob("hwmon/hwmon*")):
        for path in sorted(monitor.glob("temp*_input")):
            label = word(path.with_name(path.name.replace("_input", "_label")))
            value = number(path)
            if value is not None:
                temperatures[label or path.name.removesuffix("_input")] = value / 1000
        power = number(monitor / "power1_average")
        power = power if power is not None else number(monitor / "power1_input")
        if power is not None:
            found["power_watts"] = power / 1e6
        clock = number(monitor / "freq1_input")
        if clock is not None:
            found["clock_hz"] = clock
    return {**found, "temperatures_celsius": temperatures}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(reading(Path(sys.argv[1]))))
