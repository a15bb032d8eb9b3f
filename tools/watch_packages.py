"""Compare what is in packages with the last look: names of libraries, and packages for a GPU.

    python tools/watch_packages.py          see tools/watch.py for the options

Of each wheel only the table of contents is fetched, by ranges. Says which file of a new release is
new or gone, and which GPU has got a package of its own on AMD's indexes or lost it.
"""

from __future__ import annotations

import io
import re
import sys
import zipfile
from typing import NamedTuple, cast
from urllib.parse import urljoin

from packaging.version import InvalidVersion, Version
from refresh import DEVICE
from torch_names import Download
from watch import Watch, run

AMD = "https://stable.repo.amd.com/rocm/whl-next/"
PYPI = "https://pypi.org/simple/"
LINK = re.compile(r'href="([^"#]+)[^"]*"[^>]*>([^<]+)<')
LIBRARY = re.compile(r"(?:^|/)([^/]+\.(?:so(?:\.\d+)*|dll|pyd))$")


class Package(NamedTuple):
    index: str
    name: str
    platform: str  # a part of the wheel's name
    files: str = ""  # what a file's name begins with, where not all of them count

    def __str__(self) -> str:
        return f"{self.name} ({self.platform})"


PACKAGES = (
    Package(PYPI, "bitsandbytes", "manylinux_2_24_x86_64"),
    Package(PYPI, "bitsandbytes", "win_amd64"),
    Package(PYPI, "amdsmi", "any"),
    Package(AMD, "rocm-sdk-core", "linux_x86_64"),
    Package(AMD, "rocm-sdk-core", "win_amd64"),
    Package(AMD, "torch", "cp312-linux_x86_64", "lib"),
)
INDEXES = (AMD,)


def newest(page: str, address: str, platform: str) -> tuple[Version, str] | None:
    """Return the newest released wheel that an index lists for a platform, and its address."""
    found = []
    for link, name in LINK.findall(page):
        if name.endswith(".whl") and platform in name:
            try:
                version = Version(name.split("-")[1])
            except InvalidVersion:
                continue
            if not version.is_prerelease:
                found.append((version, urljoin(address, link)))
    return max(found, default=None)


def libraries(address: str) -> dict[str, str]:
    """Return the libraries in a wheel that is not fetched."""
    stream = io.BufferedReader(cast("io.RawIOBase", Download(address)), 256 * 1024)
    with zipfile.ZipFile(stream) as wheel:
        return {match[1]: "there" for name in wheel.namelist() if (match := LIBRARY.search(name))}


def look(watch: Watch) -> None:
    for package in PACKAGES:
        address = f"{package.index}{package.name}/"
        page = watch.page(address)
        wheel = newest(page, address, package.platform)
        if page and wheel is None:
            watch.holds.append(f"{package}: its index has no such wheel")
        if wheel is None or watch.seen.get(str(package), {}).get("at") == str(wheel[0]):
            continue
        try:
            names = libraries(wheel[1])
        except (OSError, zipfile.BadZipFile) as error:
            watch.failed.append(f"{wheel[1]}: {error}")
            continue
        kept = {name: there for name, there in names.items() if name.startswith(package.files)}
        watch.compare(str(package), kept, str(wheel[0]))
    for index in INDEXES:
        gpus = dict.fromkeys((it[1] for it in DEVICE.finditer(watch.page(index))), "there")
        if gpus:
            watch.compare(f"GPUs of {index}", gpus, " ".join(sorted(gpus)))


if __name__ == "__main__":
    sys.exit(run("packages", look))
