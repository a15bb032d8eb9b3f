"""Which rank holds up the others, by all the evidence of an incident."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from rocsteady.doctor.knowledge.waits import WaitKnowledge
from rocsteady.hangs.blame import Blame, blame
from rocsteady.hangs.collect import Collected
from rocsteady.hangs.members import gpus_of
from rocsteady.hangs.rank_records import CollectiveCount, rank_records
from rocsteady.hangs.trainers import world_size
from rocsteady.hangs.values import Heartbeat
from rocsteady.run.collectives.flight_recorder import (
    ask_flight_recorders,
    comparable,
    environment_of,
)
from rocsteady.run.collectives.ras_service import (
    ADDRESS,
    ask_ras,
    launched,
    uses_collectives_library,
)
from rocsteady.store.redaction.redactor import hide_secrets
from rocsteady.system.atomic_file import write_whole

WITHIN = 2.0  # seconds, for flight recorders and again for the RAS service
VERSION = 1  # of ranks.json


def suspects_first(pids: tuple[int, ...], found: Blame | None) -> tuple[int, ...]:
    """Put the processes of the ranks that stand out first: time may be short."""
    suspects = {record.pid for record in found.ranks} if found else set()
    return tuple(sorted(pids, key=lambda pid: pid not in suspects))


def blame_by_evidence(
    evidence: Collected, heartbeats: Sequence[Heartbeat], known: WaitKnowledge, *, began: float
) -> Blame | None:
    """Compare the ranks once more, by the snapshot that has native frames, and write that down.

    None: there are no two ranks to compare. ``began`` is of the attempt, by the monotonic clock.
    """
    snapshot, folder = evidence.snapshot, Path(evidence.folder)
    first = rank_records(snapshot, heartbeats, known) if snapshot else ()
    if snapshot is None or len(first) < 2:  # noqa: PLR2004 - to compare
        return None
    suspects = {record.rank for record in blame(first).ranks}
    ordered = sorted(first, key=lambda record: record.rank not in suspects)
    pids = {record.rank: record.pid for record in ordered if record.pid is not None}
    world = world_size(heartbeats)
    records = rank_records(
        snapshot,
        heartbeats,
        known,
        gpus={pid: gpus_of(pid) for pid in pids.values()},
        launched=_launched(folder, pids, world, began),
    )
    found = blame(records, world)
    content = msgspec.json.encode({"version": VERSION, "blame": found, "ranks": records})
    with contextlib.suppress(OSError):
        write_whole(folder / "ranks.json", msgspec.json.format(content, indent=1) + b"\n")
    return found


def _launched(
    folder: Path, pids: Mapping[int, int], world: int, began: float
) -> dict[int, CollectiveCount]:
    """Return the last collective of each rank: by flight recorders, else by RCCL's RAS service."""
    try:
        return _asked(folder, pids, world, began)
    except Exception:  # noqa: BLE001 - what others wrote costs these counts, never the watching
        return {}


def _asked(
    folder: Path, pids: Mapping[int, int], world: int, began: float
) -> dict[int, CollectiveCount]:
    since = time.time() - (time.monotonic() - began)
    groups = ask_flight_recorders(pids, since=since, within=WITHIN)
    told = comparable(groups) if len(groups) == len(pids) else {}
    asked = next((pid for pid in pids.values() if uses_collectives_library(pid)), None)
    if told or asked is None:
        return told
    answer = ask_ras(environment_of(asked, (ADDRESS,)).get(ADDRESS, ""), within=WITHIN)
    if answer.text:
        with contextlib.suppress(OSError):
            write_whole(folder / "ras.txt", hide_secrets(answer.text).encode())
    return launched(answer.text, world)
