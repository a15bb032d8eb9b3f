"""Writes what rocsteady knows of a run to a tracker, beside what the script itself logs there.

A process of its own, with the interpreter of the script, which has the tracker. Standard input
has JSON lines: first where to write, then numbers and events, until the run is over. Nothing is
sent anywhere: each tracker writes to this machine.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, Protocol

PREFIX = "rocsteady/"


class TrackerRun(Protocol):
    """One run of a tracker."""

    def numbers(self, values: dict[str, float], step: int, at: float) -> None:
        """Write numbers, by name."""

    def event(self, number: int, text: str, step: int) -> None:
        """Write what happened."""

    def finish(self) -> None:
        """Write what is left."""


class Wandb:
    """An offline run of its own, which ``wandb sync`` sends beside that of the script."""

    def __init__(self, where: dict[str, str], run: str, folder: str) -> None:
        import wandb  # noqa: PLC0415

        script = {"script_run_id": where.get("id", ""), "script_run_name": where.get("name", "")}
        self._run: Any = wandb.init(
            project=where.get("project"), entity=where.get("entity"), name=f"rocsteady-{run}",
            job_type="rocsteady", dir=folder, mode="offline", config=script,
        )  # fmt: skip
        self._run.define_metric(f"{PREFIX}*", step_metric=f"{PREFIX}step")

    def numbers(self, values: dict[str, float], step: int, at: float) -> None:
        """Write numbers; the step may go back, so it is one of them."""
        del at
        self._run.log({**values, f"{PREFIX}step": step})

    def event(self, number: int, text: str, step: int) -> None:
        """Write what happened, as a text."""
        self._run.log({f"{PREFIX}event": text, f"{PREFIX}step": step})
        self._run.summary[f"{PREFIX}event_{number}"] = text

    def finish(self) -> None:
        """Close the run."""
        self._run.finish()


class Mlflow:
    """The run of the script itself: MLflow takes numbers from several processes."""

    def __init__(self, where: dict[str, str], run: str, folder: str) -> None:
        del folder
        from mlflow.entities import Metric  # noqa: PLC0415
        from mlflow.tracking import MlflowClient  # noqa: PLC0415

        self._metric: Any = Metric
        self._client: Any = MlflowClient(tracking_uri=where["uri"])
        self._id = where["run"]
        self._client.set_tag(self._id, "rocsteady.run", run)

    def numbers(self, values: dict[str, float], step: int, at: float) -> None:
        """Write numbers."""
        milliseconds = int(at * 1000)
        rows = [self._metric(name, value, milliseconds, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=rows)

    def event(self, number: int, text: str, step: int) -> None:
        """Write what happened, as a tag."""
        del step
        self._client.set_tag(self._id, f"rocsteady.event.{number}", text)

    def finish(self) -> None:
        """Do nothing: the run is the script's."""


class Trackio:
    """A run of its own in the project of the script, on this machine."""

    def __init__(self, where: dict[str, str], run: str, folder: str) -> None:
        del folder
        import trackio  # noqa: PLC0415

        self._trackio: Any = trackio
        trackio.init(
            project=where["project"], name=f"rocsteady-{run}", resume="allow", embed=False,
            auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip

    def numbers(self, values: dict[str, float], step: int, at: float) -> None:
        """Write numbers."""
        del at
        self._trackio.log(values, step=step)

    def event(self, number: int, text: str, step: int) -> None:
        """Write what happened, as an alert; it goes to no webhook."""
        del number, step
        self._trackio.alert(title="rocsteady", text=text)

    def finish(self) -> None:
        """Close the run."""
        self._trackio.finish()


KINDS: dict[str, type[TrackerRun]] = {"wandb": Wandb, "mlflow": Mlflow, "trackio": Trackio}


def main() -> None:
    """Write until the input ends."""
    sys.path[:] = [each for each in sys.path if each != os.path.dirname(os.path.abspath(__file__))]
    lines = iter(sys.stdin.buffer.readline, b"")
    first: dict[str, Any] = json.loads(next(lines))
    writer = KINDS[first["kind"]](first["where"], first["run"], first["folder"])  # type: ignore[call-arg]
    events, failed = 0, False
    for line in lines:
        told = json.loads(line)
        values = {PREFIX + name: value for name, value in told["values"].items()}
        try:
            writer.numbers(values, told["step"], told["at"])
            for text in told["events"]:
                events += 1
                writer.event(events, text, told["step"])
            failed = False
        except (
            Exception
        ):  # a database that is locked, a server that restarts: the next may be taken
            traceback.print_exc()
            failed = True
    writer.finish()
    sys.exit(failed)


if __name__ == "__main__":
    main()
