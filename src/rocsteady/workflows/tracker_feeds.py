"""Follows the trackers that a script uses: where it logs, rocsteady writes its own numbers too.

TensorBoard's files are written here. For the others a process with the script's own interpreter
uses the script's own packages; this one imports none of them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from rocsteady.evidence.heartbeat_pages import Tracker
from rocsteady.host.feed import Feed
from rocsteady.inside.payloads import tracker_writer
from rocsteady.job.metrics import is_loopback
from rocsteady.report.run_metrics import RunMetrics
from rocsteady.report.tensorboard import file_start, numbers_record, text_record
from rocsteady.supervisor.restart_preparation import near

FOLDER = "rocsteady"  # beside the files of the script's own writer
OUTPUT = "trackers.log"  # of the run: what the packages print
FINISH_WITHIN = timedelta(seconds=20)
REMOTE = ("_space_id", "_server_base_url")  # of a run of trackio that is not kept here
NAMES = {"tensorboard": "TensorBoard", "wandb": "W&B", "mlflow": "MLflow", "trackio": "trackio"}
# Only what says where a tracker keeps its files: nothing is to be sent, and no GPU to be asked.
WITHOUT = ("WANDB_", "TRACKIO_")
KEPT = ("TRACKIO_DIR",)
QUIET = {
    "WANDB_MODE": "offline",
    "WANDB_CONSOLE": "off",
    "WANDB_SILENT": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_DISABLE_MACHINE_INFO": "true",
    "WANDB__DISABLE_STATS": "true",  # as older ones spell it
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
}


class OpenTracker(Protocol):
    """A tracker that is being written to."""

    name: str

    def write(self, metrics: RunMetrics, /) -> str:
        """Write numbers and new events; return why that failed, or ""."""

    def end(self) -> None:
        """Give no more."""

    def close(self) -> str:
        """Write what is left; return why that failed, or ""."""


@dataclass
class EventFile:
    """An event file of TensorBoard."""

    name: str
    path: Path
    _events: int = 0

    def write(self, metrics: RunMetrics) -> str:
        """Append to it. A folder that the script has removed is not made again."""
        step, at = metrics.step, metrics.at
        rows = [(f"rocsteady/{name}", value) for name, value in metrics.values.items()]
        new = metrics.events[self._events :]
        content = [numbers_record(rows, step, at)]
        content += [text_record("rocsteady/event", each.text, step, each.at) for each in new]
        try:
            if not self.path.parent.parent.is_dir():
                return "its folder is gone"
            self.path.parent.mkdir(exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
            flags |= getattr(os, "O_NONBLOCK", 0)  # nobody may read from a FIFO in its place
            descriptor = os.open(self.path, flags, 0o666)
            with os.fdopen(descriptor, "ab") as stream:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return "not a regular file"
                start = b"" if stream.tell() else file_start(at)
                stream.write(start + b"".join(content))
        except OSError as error:
            return error.strerror or type(error).__name__
        self._events += len(new)
        return ""

    def end(self) -> None:
        """Do nothing: each write is whole."""

    def close(self) -> str:
        """Do nothing."""
        return ""


@dataclass
class PackageFeed:
    """A process that writes to a tracker with the script's own package."""

    name: str
    feed: Feed
    _events: int = 0

    def write(self, metrics: RunMetrics) -> str:
        """Give it the numbers, and the events that are new."""
        if self.feed.has_ended:
            return f"its process ended; see {OUTPUT} in the run's folder"
        new = metrics.events[self._events :]
        self._events += len(new)
        told = {
            "step": metrics.step,
            "at": metrics.at,
            "values": metrics.values,
            "events": [each.text for each in new],
        }
        self.feed.send(msgspec.json.encode(told))
        return ""

    def end(self) -> None:
        """Give it no more."""
        self.feed.end()

    def close(self) -> str:
        """Let it finish."""
        code = self.feed.close(FINISH_WITHIN)
        return "" if code == 0 else f"its process did not finish; see {OUTPUT} in the run's folder"


@dataclass
class TrackerFeeds:
    """The trackers of one run."""

    run: str
    records: Path  # the folder of the run
    environment: Mapping[str, str]
    _open: dict[str, tuple[Tracker, OpenTracker]] = field(default_factory=dict)  # by kind
    _refused: set[str] = field(default_factory=set)

    @property
    def open(self) -> tuple[OpenTracker, ...]:
        """Return those that are written to."""
        return tuple(tracker for _, tracker in self._open.values())

    def follow(self, trackers: Iterable[Tracker], say: Callable[[str], None]) -> bool:
        """Write to each that is new, in the place of the older one of its kind; tell if one is."""
        found, new = False, list[str]()
        for tracker in trackers:
            known = self._open.get(tracker.kind)
            if tracker.kind not in NAMES or (known is not None and known[0] == tracker):
                continue
            opened = self._opened(tracker)
            if isinstance(opened, str):
                if tracker.kind not in self._refused:
                    self._refused.add(tracker.kind)
                    say(f"metrics not written to {NAMES[tracker.kind]}: {opened}.")
                continue
            if known is not None:
                known[1].close()
            else:
                new.append(opened.name)
            self._open[tracker.kind] = (tracker, opened)
            found = True
        if new:
            say(f"progress and incidents are also written to {', '.join(new)}.")
        return found

    def close(self, say: Callable[[str], None]) -> None:
        """Let all of them finish, at the same time."""
        for tracker in self.open:
            tracker.end()
        for tracker in self.open:
            why = tracker.close()
            if why:
                say(f"metrics not written to {tracker.name}: {why}.")

    def _opened(self, tracker: Tracker) -> OpenTracker | str:
        """Open a tracker, or say why not."""
        where = tracker.where
        if tracker.kind == "tensorboard":
            folder = Path(where.get("folder", ""))
            if not folder.is_absolute() or "\0" in str(folder):
                return "its files are not on this machine"
            path = folder / FOLDER / f"events.out.tfevents.{os.getpid()}.{self.run}"
            return EventFile(f"TensorBoard ({near(folder / FOLDER)})", path)
        if tracker.kind == "mlflow" and not _is_here(where.get("uri", "")):
            return "its server is not on this machine"
        if tracker.kind == "trackio" and any(where.get(name) for name in REMOTE):
            return "the script logs to a Space or a server"
        try:
            feed = Feed(
                [tracker.python, tracker_writer.__file__],
                self._environment(),
                Path(tracker.folder),
                self.records / OUTPUT,
            )
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", "") or type(error).__name__
        start = {"kind": tracker.kind, "where": where, "run": self.run, "folder": str(self.records)}
        feed.send(msgspec.json.encode(start))
        return PackageFeed(NAMES[tracker.kind], feed)

    def _environment(self) -> dict[str, str]:
        given = self.environment.items()
        kept = {k: v for k, v in given if k in KEPT or not k.startswith(WITHOUT)}
        return {**kept, **QUIET}


def _is_here(uri: str) -> bool:
    """Tell a store of MLflow that is on this machine; databricks and uc:... are not."""
    scheme, sign, rest = uri.partition(":")
    if not sign or len(scheme) == 1:  # a folder, also C:\\runs
        return not scheme.startswith("databricks")
    if scheme == "file":
        return not rest.startswith("//") or rest[2:].partition("/")[0] in ("", "localhost")
    return scheme == "sqlite" or is_loopback(uri)
