"""Runs one probe: starts its payload, watches it, and says what came of it.

Before each an intent is on the disk, since a probe may take the machine down. A payload that does
no try for too long hangs; its stacks are taken before it is ended. Time in which it was ready to
run and had no processor does not count, up to a limit. Whatever becomes of it, the next is run.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import struct
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import msgspec
from rocsteady_train.untrusted_file import read_regular

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.hangs.heartbeat_pages import RaisedException
from rocsteady.hangs.looking.collect import collect
from rocsteady.hangs.looking.processor_wait import ProcessorWait
from rocsteady.hangs.looking.snapshot import in_native_code, take_snapshot
from rocsteady.hangs.values import Snapshot
from rocsteady.model import FailureKind, Observation, ProbeOutcome, Value
from rocsteady.probe.catalog import Probe
from rocsteady.probe.guard import Guard
from rocsteady.probe.payload_site import START, kill_isolated, lay_out
from rocsteady.run.attempt.symptoms import log_tail
from rocsteady.system.child import Child, Start, start_child
from rocsteady.system.child_end import DETACHED, Exit
from rocsteady.typed_values import read_json
from rocsteady.wording import duration

POLL = 0.02  # seconds
QUIET, MAX_PATIENCE = 0.1, 10  # of its patience: when to count, and at most, if it has no processor
COUNT_EVERY = 0.5  # seconds
SNAPSHOTS, SNAPSHOT_WITHIN, BETWEEN_SNAPSHOTS = 3, timedelta(seconds=3), 0.3
EVIDENCE_WITHIN = timedelta(seconds=8)
RESULT_LIMIT = 16 * 1024 * 1024  # bytes
_BEAT = struct.Struct("=Q")


class Result(Value, frozen=True, kw_only=True):
    """What a payload leaves of its tries."""

    version: int
    traceback: str = ""
    observation: Observation


class ProbeRunner:
    def __init__(
        self,
        python: str,
        *,
        folder: Path,
        guard: Guard,
        environment: Mapping[str, str],
    ) -> None:
        self._python, self._folder, self.guard = python, folder, guard
        self._environment = dict(environment)
        self._site = lay_out(folder)
        self._numbers = itertools.count(1)
        self._run_id = f"probe-{os.getpid()}"

    def run(
        self,
        probe: Probe,
        *,
        tries: int,
        seconds: float,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Observation:
        folder = self._folder / f"probe-{next(self._numbers)}"
        folder.mkdir(mode=0o700)
        request: dict[str, object] = {
            "probe": probe.name,
            "payload": probe.payload,
            "arguments": probe.arguments,
            "tries": tries,
            "seconds": seconds,
            "folder": str(folder),
        }
        run_id = f"{self._run_id}-{folder.name}"  # its own: who ends it ends all of that name
        start = Start(
            command=[self._python, "-c", START, str(self._site), json.dumps(request)],
            environment={**self._environment, "ROCSTEADY_RUN": run_id},
            folder=folder,
            run_id=run_id,
            log=folder / "output",
            terminal=DETACHED,
        )
        began = time.time()
        with self.guard.trying(probe.name, probe.variant) as intent:
            try:
                with contextlib.closing(start_child(start)) as payload:
                    observation = _Watch(payload, probe, folder, began, progress).observe()
            except OSError as error:
                observation = Observation(
                    probe=probe.name,
                    outcome=ProbeOutcome.NOT_RUN,
                    why=f"it could not be started: {error.strerror}",
                )
            intent.end(observation.outcome.value)
        if not observation.bad:
            shutil.rmtree(folder, ignore_errors=True)
        return msgspec.structs.replace(
            observation,
            variant=probe.variant,
            software=self.guard.software,
            at=began,
        )


class _Watch:
    def __init__(
        self,
        payload: Child,
        probe: Probe,
        folder: Path,
        began: float,
        progress: Callable[[int], None],
    ) -> None:
        self._payload, self._probe, self._folder = payload, probe, folder
        self._began, self._progress = began, progress

    def observe(self) -> Observation:
        start = moved = time.monotonic()
        before, waited = 0, _Waited(self._payload)
        while True:
            ended = self._payload.wait(POLL)
            if ended is not None:
                return self._ended(ended, time.monotonic() - start)
            beat = self._beat()
            if beat != before:
                before, moved, waited = beat, time.monotonic(), _Waited(self._payload)
                self._progress(beat)
            patience = (
                self._probe.patience if beat else max(self._probe.first, self._probe.patience)
            )
            if waited.too_long(time.monotonic() - moved, patience):
                return self._hung(beat, time.monotonic() - start)

    def _ended(self, ended: Exit, seconds: float) -> Observation:
        result = self._result()
        if result is not None and ended.code == 0:
            seen = result.observation
            if not seen.bad:
                return seen
            place = failure = ""
            if seen.outcome in (ProbeOutcome.EXCEPTION, ProbeOutcome.NO_MEMORY):
                name = seen.why.partition(":")[0]
                raised = RaisedException(type=name, message=seen.why, traceback=result.traceback)
                failure, place = self._named(
                    Symptoms(log=result.traceback, raised=(raised,), exit_code=1)
                )
            return msgspec.structs.replace(
                seen, place=place, failure=failure, evidence=str(self._folder)
            )
        log, how = self._output(), f"ended with exit code {ended.code}"
        if ended.signal:
            how = f"terminated by signal {ended.signal}"
        failure, place = self._named(Symptoms(log=log, exit_code=ended.code, signal=ended.signal))
        return Observation(
            probe=self._probe.name,
            outcome=ProbeOutcome.CRASH,
            tries=self._beat(),
            seconds=seconds,
            why=how + (f": {_last_line(log)}" if log.strip() else ""),
            place=place,
            failure=failure,
            evidence=str(self._folder),
        )

    def _hung(self, tries: int, seconds: float) -> Observation:
        pids = _tree(self._payload)
        snapshots: list[Snapshot] = []
        for _ in range(SNAPSHOTS):
            snapshots.append(
                take_snapshot(pids, stacks=True, within=SNAPSHOT_WITHIN, native=in_native_code)
            )
            time.sleep(BETWEEN_SNAPSHOTS)
        collected = collect(
            self._folder / "evidence",
            pids=pids,
            pages=None,
            log=self._folder / "output",
            since=self._began,
            within=EVIDENCE_WITHIN,
        )
        killed = kill_isolated(self._payload)
        failure, place = self._named(
            Symptoms(log=self._output(), hung=True, snapshots=tuple(snapshots), step=tries)
        )
        return Observation(
            probe=self._probe.name,
            outcome=ProbeOutcome.HANG if killed else ProbeOutcome.UNKILLABLE,
            tries=tries,
            seconds=seconds,
            why=f"at try {tries + 1}, terminated after {duration(seconds)}"
            if killed
            else f"at try {tries + 1}; it cannot be killed and may still hold the GPU",
            place=place,
            failure=failure,
            evidence=collected.folder,
        )

    def _named(self, symptoms: Symptoms) -> tuple[str, str]:
        named = Classifier(load_failures()).name(symptoms)
        kind = "" if named.kind == FailureKind.UNKNOWN else named.kind
        return kind, named.fingerprint.place

    def _beat(self) -> int:
        try:
            content = read_regular(self._folder / "beat", _BEAT.size)
        except OSError:
            return 0
        return int(_BEAT.unpack(content)[0]) if len(content) == _BEAT.size else 0

    def _result(self) -> Result | None:
        return read_json(self._folder / "result.json", Result, RESULT_LIMIT)

    def _output(self) -> str:
        return log_tail(self._folder / "output")


class _Waited:
    """Tells a payload that hangs from one that is ready and has no processor."""

    def __init__(self, payload: Child) -> None:
        self._payload = payload
        self._wait: ProcessorWait | None = None
        self._next = 0.0

    def too_long(self, quiet: float, patience: float) -> bool:
        """Whether nothing was heard of it for too long; ``quiet`` seconds have passed."""
        if quiet < QUIET * patience or quiet < self._next:
            return False
        if self._wait is None:
            self._wait = ProcessorWait(_tree(self._payload))
        if quiet <= patience:
            return False
        self._next = quiet + COUNT_EVERY
        return quiet > MAX_PATIENCE * patience or (
            quiet - self._wait.seconds(_tree(self._payload)) > patience
        )


def _tree(payload: Child) -> tuple[int, ...]:
    return payload.tree() or (payload.pid,)


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
