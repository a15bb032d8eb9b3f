"""Where the numbers of a run are written too: the table ``metrics`` of a job file, or of the user.

::

    [metrics]
    prometheus = "/var/lib/node_exporter/rocsteady-{run}.prom"  # for its textfile collector
    otlp = "http://127.0.0.1:4318"                              # an OpenTelemetry collector
    trackers = true                                             # those that the script uses
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from ipaddress import ip_address

from rocsteady.job.address import host_of
from rocsteady.vocabulary import Value

RUN = "{run}"  # in the name of a file: the name of the run
SUFFIX = ".prom"  # node_exporter reads no other file


class Metrics(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who else is given the numbers of a run."""

    prometheus: str = ""  # a file
    otlp: str = ""  # the address of a collector
    trackers: bool = True  # TensorBoard, W&B, MLflow and trackio, where the script uses them


def metrics_problems(metrics: Metrics | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong: the key, and a sentence."""
    if metrics is None:
        return
    if "\0" in metrics.prometheus:
        yield "metrics.prometheus", "contains a zero byte"
    elif metrics.prometheus and not metrics.prometheus.endswith(SUFFIX):
        yield "metrics.prometheus", f"must end in {SUFFIX}, or node_exporter does not read it"
    if metrics.otlp and not host_of(metrics.otlp):
        yield "metrics.otlp", "must begin with https:// or http:// and name a host"


def metrics_lines(metrics: Metrics | None) -> Iterator[str]:
    """Spell what a job file would write and send to, for the question whether to trust it."""
    if metrics is None:
        return
    if metrics.prometheus:
        yield f"metrics.prometheus: writes {metrics.prometheus}"
    if metrics.otlp:
        digest = hashlib.sha256(metrics.otlp.encode()).hexdigest()[:12]
        yield f"metrics, to {host_of(metrics.otlp)} (address with SHA-256 {digest})"


def is_loopback(address: str) -> bool:
    """Tell an address of this machine from all others."""
    host = host_of(address)
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
