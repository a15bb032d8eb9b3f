"""Where the numbers of a run are written too: the table ``metrics`` of a job file, or of the user.

::

    [metrics]
    file = "metrics-{run}.jsonl"                                # one JSON object a line
    prometheus = "/var/lib/node_exporter/rocsteady-{run}.prom"  # for its textfile collector
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocsteady.model import Value

RUN = "{run}"  # in the name of a file: the name of the run
JSON_LINES, PROMETHEUS = ".jsonl", ".prom"  # node_exporter reads no other file


class Metrics(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who else is given the numbers of a run."""

    file: str | None = None  # of JSON Lines
    prometheus: str | None = None  # a file


def metrics_problems(metrics: Metrics | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong: the key, and a sentence."""
    for key, path, suffix in _files(metrics):
        if problem := _wrong_with_file(path, suffix):
            yield f"metrics.{key}", problem


def _files(metrics: Metrics | None) -> Iterator[tuple[str, str, str]]:
    """Yield the key, the path and the suffix of each file."""
    if metrics and metrics.file is not None:
        yield "file", metrics.file, JSON_LINES
    if metrics and metrics.prometheus is not None:
        yield "prometheus", metrics.prometheus, PROMETHEUS


def _wrong_with_file(path: str, suffix: str) -> str:
    if "\0" in path:
        return "contains a zero byte"
    if not path.endswith(suffix):
        return f"must end in {suffix}"
    if re.split(r"[/\\]", path)[-1] == suffix:
        return f"must name a file, such as rocsteady-{RUN}{suffix}"
    unknown = [each for each in re.findall(r"\{[^{}]*\}", path) if each != RUN]
    return f"{unknown[0]} is not known; the name of the run is {RUN}" if unknown else ""


def metrics_lines(metrics: Metrics | None) -> Iterator[str]:
    """Spell what a job file would write, for the question whether to trust it."""
    for key, path, _ in _files(metrics):
        yield f"metrics.{key}: writes {path}"
