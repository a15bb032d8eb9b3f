"""The numbers of a run as text for Prometheus, for the textfile collector of node_exporter."""

from __future__ import annotations

from rocsteady.report.run_metrics import QUANTITIES, RunMetrics

PREFIX = "rocsteady_"


def render_prometheus(metrics: RunMetrics) -> str:
    """Lay out the numbers; the name of a run needs no quoting."""
    lines: list[str] = []
    for quantity in QUANTITIES:
        value = metrics.values.get(quantity.name)
        if value is None:
            continue
        name = PREFIX + quantity.name
        lines += [
            f"# HELP {name} {quantity.meaning}",
            f"# TYPE {name} gauge",
            f'{name}{{run="{metrics.run}"}} {value!r}',
        ]
    return "\n".join(lines) + "\n"
