"""The progress of a run as Kubeflow Trainer takes it from inside a TrainJob.

POST of JSON to the address in ``KUBEFLOW_TRAINER_SERVER_URL``, with a token that changes: the
feature TrainJobStatus of Kubeflow Trainer 2.2 and later (docs/user-guides/trainjob-progress.md and
pkg/statusserver there, read in August 2026). Numbers of metrics are texts there.
"""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from rocsteady.report.notice import WebhookPost
from rocsteady.report.run_metrics import RunMetrics

SHOWN = ("steps_per_second", "goodput_ratio", "attempts", "incidents")
MOST_SECONDS = 2**31 - 1


def kubeflow_post(metrics: RunMetrics, address: str, token: str, authority: str) -> WebhookPost:
    """Lay out a request; what is not known is left out."""
    values = metrics.values
    status: dict[str, object] = {
        "lastUpdatedTime": datetime.fromtimestamp(metrics.at, timezone.utc).isoformat(
            timespec="seconds"
        ),
        "metrics": [
            {"name": name, "value": f"{values[name]:.6g}"} for name in SHOWN if name in values
        ],
    }
    if values.get("done"):
        status["progressPercentage"] = 100
    elif total := values.get("planned_steps"):
        status["progressPercentage"] = max(0, min(99, int(100 * metrics.step / total)))
    if "remaining_seconds" in values:
        status["estimatedRemainingSeconds"] = min(int(values["remaining_seconds"]), MOST_SECONDS)
    return WebhookPost(
        url=address,
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
        body=msgspec.json.encode({"trainerStatus": status}).decode(),
        authority=authority,
    )
