"""The numbers of a run as OpenTelemetry's protocol has them: OTLP over HTTP, as JSON."""

from __future__ import annotations

import msgspec

from rocsteady import __version__
from rocsteady.report.run_metrics import QUANTITIES, RunMetrics
from rocsteady.supervisor.notifications import WebhookPost

PATH = "/v1/metrics"
PREFIX = "rocsteady."
DIMENSIONLESS = "1"


def otlp_post(metrics: RunMetrics, address: str, headers: dict[str, str]) -> WebhookPost:
    """Lay out a request; an address without a path is that of a collector, as its own SDKs read it.

    Numbers of 64 bits are texts in this form of the protocol, and enums are numbers.
    """
    at = str(int(metrics.at * 1e9))
    gauges = [
        {
            "name": PREFIX + quantity.name,
            "description": quantity.meaning,
            "unit": quantity.unit or DIMENSIONLESS,
            "gauge": {
                "dataPoints": [{"timeUnixNano": at, "asDouble": metrics.values[quantity.name]}]
            },
        }
        for quantity in QUANTITIES
        if quantity.name in metrics.values
    ]
    resource = {"service.name": "rocsteady", "rocsteady.run": metrics.run}
    body = {
        "resourceMetrics": [
            {
                "resource": {
                    "attributes": [
                        {"key": key, "value": {"stringValue": value}}
                        for key, value in resource.items()
                    ]
                },
                "scopeMetrics": [
                    {"scope": {"name": "rocsteady", "version": __version__}, "metrics": gauges}
                ],
            }
        ]
    }
    url = address.rstrip("/")
    return WebhookPost(
        url=url if url.endswith(PATH) else url + PATH,
        headers={"Content-Type": "application/json", **headers},
        body=msgspec.json.encode(body).decode(),
    )


def otlp_headers(text: str) -> dict[str, str]:
    """Read OTEL_EXPORTER_OTLP_HEADERS: name=value, with commas between them."""
    from urllib.parse import unquote  # noqa: PLC0415 - only where there is a collector

    pairs = (each.partition("=") for each in text.split(","))
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs if name.strip()}
