"""The journals of several hosts, read as one story."""

from __future__ import annotations

from msgspec.structs import replace
from sample_run import hang, record

from rocsteady.model import RankRecord
from rocsteady.report.hosts import HostLine, job_timeline
from rocsteady.store.run_account import incident_title
from rocsteady.store.values import MessageRecord, RunRecord


def said(*messages: tuple[float, str]) -> RunRecord:
    told = tuple(MessageRecord(run=1, text=text, at=at) for at, text in messages)
    return replace(record(), messages=told)


def test_lines_of_all_hosts_are_in_the_order_of_time_and_the_same_event_is_one_line() -> None:
    hosts = {
        "host-1": said((10.0, "started"), (60.0, "hung: rank 3 (host 1)"), (90.0, "started")),
        "host-2": said((12.0, "started"), (61.0, "evidence: rank 3"), (500.0, "started")),
    }

    assert job_timeline(hosts).lines == (
        HostLine(at=10.0, hosts=("host-1", "host-2"), text="started"),
        HostLine(at=60.0, hosts=("host-1",), text="hung: rank 3 (host 1)"),
        HostLine(at=61.0, hosts=("host-2",), text="evidence: rank 3"),
        HostLine(at=90.0, hosts=("host-1",), text="started"),
        HostLine(at=500.0, hosts=("host-2",), text="started"),
    )


def test_the_place_of_a_hang_is_that_of_the_rank_that_is_blamed() -> None:
    incident = hang(1, attempt=1)
    assert incident.blame is not None
    blamed = replace(incident.blame, ranks=(RankRecord(rank=3, place="train.py:50 load"),))

    title = incident_title(replace(incident, place="train.py:9 main", blame=blamed))

    assert (" 3 " in title, "train.py:50" in title, "train.py:9 " in title) == (True, True, False)
