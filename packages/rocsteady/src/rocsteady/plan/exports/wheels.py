"""rocsteady itself as wheels, made from what is installed here: it need not be in any index.

Also where it is installed from a checkout: what counts is the package's own folder.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

FOLDER = "rocsteady-wheels"  # below the project
PACKAGES = ("rocsteady", "rocsteady-train", "rocsteady-knowledge")
METADATA_KEPT = ("METADATA", "entry_points.txt")  # of what an installer was told
PLACE = re.compile(r"(?m)(?<=[a-z]) @ file:.*$")  # where a checkout has it: it is elsewhere there
WHEEL = "Wheel-Version: 1.0\nGenerator: rocsteady\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheels() -> dict[str, bytes]:
    return dict(map(_wheel, PACKAGES))


def _wheel(name: str) -> tuple[str, bytes]:
    installed = distribution(name)
    stem = f"{name.replace('-', '_')}-{installed.version}"
    files = dict(_files(name.replace("-", "_")))
    for kept in METADATA_KEPT:
        if text := installed.read_text(kept):
            files[f"{stem}.dist-info/{kept}"] = PLACE.sub("", text).encode()
    files[f"{stem}.dist-info/WHEEL"] = WHEEL.encode()
    record = io.StringIO()
    lines = csv.writer(record, lineterminator="\n")
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.writerow((path, f"sha256={digest}", len(content)))
    lines.writerow((f"{stem}.dist-info/RECORD", "", ""))
    files[f"{stem}.dist-info/RECORD"] = record.getvalue().encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)
    return f"{stem}-py3-none-any.whl", packed.getvalue()


def _files(package: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a package, by their paths in the wheel."""
    found = find_spec(package)
    for place in (found.submodule_search_locations or ()) if found else ():
        root = Path(place)
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{package}/{path.relative_to(root).as_posix()}", path.read_bytes()
