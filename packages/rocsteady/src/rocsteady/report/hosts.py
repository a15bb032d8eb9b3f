"""One story of a job on several hosts: what each journal says, in the order of events."""

from __future__ import annotations

from collections.abc import Mapping

from rocsteady.model import Value
from rocsteady.store.redaction import redactor_here
from rocsteady.store.values import RunRecord

AT_ONCE = 30.0  # seconds in which several hosts that say the same speak of one event


class HostLine(Value, frozen=True, kw_only=True):
    """One line, and the hosts that said it."""

    at: float
    hosts: tuple[str, ...]
    text: str


class JobTimeline(Value, frozen=True, kw_only=True):
    """All hosts of a job; clocks of hosts may differ."""

    version: int = 1
    runs: dict[str, str]  # by host
    lines: tuple[HostLine, ...]


def job_timeline(records: Mapping[str, RunRecord]) -> JobTimeline:
    """Merge the last runs of several hosts, redacted so that it can be sent."""
    redactor = redactor_here()
    said = sorted(
        (message.at, host, redactor.text(message.text))
        for host, record in records.items()
        for message in record.messages
    )
    lines: list[HostLine] = []
    for at, host, text in said:
        near = (line for line in reversed(lines) if line.at >= at - AT_ONCE)
        same = next((line for line in near if line.text == text and host not in line.hosts), None)
        if same is None:
            lines.append(HostLine(at=at, hosts=(host,), text=text))
        else:
            joined = HostLine(at=same.at, hosts=(*same.hosts, host), text=text)
            lines[lines.index(same)] = joined
    runs = {host: record.run.name for host, record in records.items()}
    return JobTimeline(runs=runs, lines=tuple(lines))
