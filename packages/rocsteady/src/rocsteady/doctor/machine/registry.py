"""The Windows registry as a tree of files: ``/HKLM/key/subkey/value``.

Unconfirmed: type-checked, never run on Windows.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import winreg

    def holds(path: str) -> bool:
        return path.startswith("/HKLM/")

    def text(path: str) -> str:
        key, _, name = path.removeprefix("/HKLM/").rpartition("/")
        with _open(key) as handle:
            value, kind = winreg.QueryValueEx(handle, name)
        if kind == winreg.REG_BINARY:  # qwMemorySize is stored so by some drivers
            return str(int.from_bytes(value, "little"))
        return str(value)

    def names(path: str) -> tuple[str, ...]:
        found: list[str] = []
        with _open(path.removeprefix("/HKLM/")) as handle:
            while True:
                try:
                    found.append(winreg.EnumKey(handle, len(found)))
                except OSError:
                    return tuple(sorted(found))

    def _open(key: str) -> winreg.HKEYType:
        return winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key.replace("/", "\\"))
