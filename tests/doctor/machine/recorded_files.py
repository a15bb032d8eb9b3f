"""Machines that are a few files, for tests of what is read from them."""

from __future__ import annotations

from typing import Any

from rocsteady.doctor.machine.recording import RecordedPath, RecordedRoot, Recording
from rocsteady.doctor.machine.view import View

Files = dict[str, str | RecordedPath]


def recording_of(files: Files, **fields: Any) -> Recording:  # noqa: ANN401 - those of Recording
    """Return the recording of a Linux machine in its root folder, unless ``fields`` differ."""
    given = {"platform": "linux", "folder": "/", "environment": {}} | fields
    return Recording(version=1, note="", files=files, **given)


def root_of(files: Files, **fields: Any) -> RecordedRoot:  # noqa: ANN401
    return RecordedRoot(recording_of(files, **fields))


def view_of(files: Files, **fields: Any) -> View:  # noqa: ANN401
    return View(root_of(files, **fields))
