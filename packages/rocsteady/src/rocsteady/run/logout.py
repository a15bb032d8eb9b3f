"""Does logging out end this run? Where logind is told to kill a session's processes, it does."""

from __future__ import annotations

import re
from pathlib import Path

SETTINGS = ("etc/systemd/logind.conf", "run/systemd/logind.conf", "usr/lib/systemd/logind.conf")
_KILLS = re.compile(r"^\s*KillUserProcesses\s*=\s*(\w+)", re.MULTILINE)
_YES = {"yes", "true", "on", "1"}
LOGOUT_WARNING = (
    "logging out will stop this run, because logind kills the processes of a session. To avoid"
    " that, use --detach."
)


def logging_out_ends_us(root: Path = Path("/")) -> bool:
    """Tell from settings and cgroup; distributions that say nothing do not kill."""
    if ".scope" not in (group := _text(root / "proc/self/cgroup")) or "session-" not in group:
        return False
    # Later ones count more: the administrator's file, then drop-ins by name.
    files = [root / name for name in reversed(SETTINGS)]
    dropped = [part for name in SETTINGS for part in (root / f"{name}.d").glob("*.conf")]
    files += sorted(dropped, key=lambda path: path.name)
    said = [word for path in files for word in _KILLS.findall(_text(path))]
    return bool(said) and said[-1].lower() in _YES


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
