"""Collects what is known of an attempt that failed."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from itertools import islice
from pathlib import Path

from rocsteady_train.untrusted_file import read_tail

from rocsteady.failures.rank_ends import told_end
from rocsteady.failures.symptoms import Symptoms
from rocsteady.hangs.looking.kernel_log import concerning, read_kernel_log
from rocsteady.hangs.looking.memory import shared_memory_is_full
from rocsteady.hangs.values import trainers
from rocsteady.model import CPU, Outcome
from rocsteady.run.attempt.attempt_end import AttemptEnd, without_stopped_line
from rocsteady.run.context import AttemptContext
from rocsteady.system.gpu_users import held_by_others
from rocsteady.system.logfile import STAMP
from rocsteady.system.parallel import run_all

LOG_TAIL = 1024 * 1024  # bytes
OTHER_GPUS = ("/dev/nvidiactl", "/dev/dxg", "/dev/dri/renderD128")
MAX_FOLDERS = 1000  # that are looked at for disks of their own
DISKS_WITHIN = timedelta(seconds=1)
KERNEL_WITHIN = timedelta(seconds=2)


def _culprit(end: AttemptEnd) -> int | None:
    """Return the process of the rank that is blamed, else the one that the verdict blames.

    The only process that trains needs no blame.
    """
    if end.found is None:
        return None
    ranks = end.found.blame.ranks if end.found.blame else ()
    if len(ranks) == 1:
        here = {(beat.rank, beat.pid) for beat in end.heartbeats}
        blamed = ranks[0].rank, ranks[0].pid
        return ranks[0].pid if blamed in here else None  # one of another host is read there
    trains = {beat.pid for beat in trainers(end.heartbeats)}
    alone = next(iter(trains)) if len(trains) == 1 else None
    return end.found.verdict.culprit or alone


def collect_symptoms(context: AttemptContext, end: AttemptEnd) -> Symptoms:
    """Collect what is known of an attempt that failed. What cannot be had is left out."""
    culprit, log = _culprit(end), log_tail(context.log)
    ended = end.exit
    if ended is not None and ended.rank is None and end.outcome is Outcome.BY_ITSELF:
        ended = told_end(log) or end.first_failure or ended
    blamed = [beat for beat in end.heartbeats if beat.pid == culprit]
    trainer = next(iter(blamed or end.heartbeats), None)
    last = end.found.evidence.snapshot if end.found else None  # has native frames
    has_gpu = bool(end.members.all_gpus) or any(map(os.path.lexists, OTHER_GPUS))
    return Symptoms(
        log=log,
        kernel=concerning(read_kernel_log(end.began, within=KERNEL_WITHIN).lines, end.members),
        exit_code=ended.code if ended else None,
        signal=ended.signal if ended else None,
        rank=ended.rank if ended else None,
        hung=end.outcome in (Outcome.HUNG, Outcome.UNKILLABLE),
        snapshots=(*end.snapshots, *([last] if last else [])),
        heartbeats=end.heartbeats,
        culprit=culprit,
        phase=trainer.phase if trainer else "",
        step=end.last_step,
        total=end.total,
        start="" if end.start else end.read,
        oom_kills=end.oom_kills,
        loader_workers=end.loader is not None and end.loader.workers > 0,
        shared_full=shared_memory_is_full(),
        raised=end.raised,
        disk_free=_free(context.spec.folder, end.unsaved),
        file_limit=end.saved.limit,
        gpu_taken=held_by_others(end.processes),
        exits=bool(end.heartbeats) and all(it.ended and not it.raised for it in end.heartbeats),
        gpu=has_gpu and context.strategy.device != CPU,
        ranks=not end.heartbeats or any((each.world or 1) > 1 for each in end.heartbeats),
    )


def log_tail(path: Path) -> str:
    """Return the end of a kept log, without the times; "" if there is none."""
    try:
        tail = read_tail(path, LOG_TAIL + 1, follow=False)
    except OSError:
        return ""
    if len(tail) > LOG_TAIL:
        tail = tail.partition(b"\n")[2]  # begin with a whole line
    return without_stopped_line(STAMP.sub(b"", tail).decode("utf-8", "replace"))


def _free(folder: Path, failed: str) -> int | None:
    """Return the least that is free where a script writes: its folder, and disks mounted below.

    ``failed``: a file that could not be saved, which may be anywhere else.
    """
    free: list[int] = []

    def look() -> None:
        device = folder.stat().st_dev
        free.append(shutil.disk_usage(folder).free)
        if failed:
            free.append(shutil.disk_usage(Path(failed).parent).free)
        paths = [path for path in islice(folder.iterdir(), MAX_FOLDERS) if path.is_dir()]
        others = [path for path in paths if path.stat().st_dev != device]
        free.extend(shutil.disk_usage(path).free for path in others)

    run_all({"disks": look}, within=DISKS_WITHIN, at_once=1)  # a dead server never answers
    return min(free, default=None)
