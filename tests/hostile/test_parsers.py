"""Mutated pages, manifests, recordings and job files: an answer or an error of ours."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import count, number
from rocsteady_train.checkpoints.folder import (
    MANIFEST,
    FileFact,
    hash_of,
    manifest_text,
    what_is_wrong,
)
from rocsteady_train.inside import wire

from rocsteady.doctor.machine.machine import examine
from rocsteady.doctor.machine.recording import RecordedRoot, read_recording
from rocsteady.errors import JobError, RecordingError
from rocsteady.hangs.heartbeat_pages import (
    read_applied,
    read_batch_split,
    read_checkpoint,
    read_loader_facts,
    read_notes,
    read_pages,
    read_raised,
    read_resumes,
    read_size,
)
from rocsteady.run.job.job_file import read_job

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="makes FIFOs and devices")
AT_MOST = 10.0  # seconds for one input, on a machine that does other things too
MACHINES = Path(__file__).parents[1] / "machines"
ODD: list[object] = [
    None, True, -1, 0, 1e400, float("nan"), 10**400, 1 << 63, "", "x" * 10_000, "\0", "\x1b[2J",
    "../../etc/passwd", "/dev/zero", [], {}, [[]], {"": {}}, json.loads("[" * 300 + "]" * 300),
]  # fmt: skip


def mutated(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 8])):
        at = draw.randrange(len(changed) + 1)
        kind = draw.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del changed[at : at + draw.randrange(1, 200)]
        elif kind == 2:
            changed[at:at] = draw.randbytes(draw.randrange(1, 50))
        elif kind == 3:
            changed[at:at] = changed[: draw.randrange(200)]
        else:
            changed[at : at + 8] = b"\xff" * 8
    return bytes(changed)


def replaced(value: object, draw: random.Random) -> object:
    """Replace a value somewhere in JSON by an odd one."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        key = draw.choice(list(value))
        if draw.random() < 0.1:
            return {each: value[each] for each in value if each != key}
        return {**value, key: replaced(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        return [*value[:at], replaced(value[at], draw), *value[at + 1 :]]
    return draw.choice(ODD)


def all_answer(what: str, few: int, attempt: Callable[[random.Random], None]) -> None:
    for seed in range(number(few, 500)):
        began = time.monotonic()
        attempt(random.Random(seed))  # noqa: S311 - inputs, not secrets
        assert time.monotonic() - began < AT_MOST, f"seed {seed} took too long"
        count(f"mutated {what}", "tried")
    count(f"mutated {what}", "exceptions that are not ours, or blocks", 0)


def test_pages(tmp_path: Path) -> None:
    words = [0] * (wire.SIZE // 8)
    words[wire.W_MAGIC], words[wire.W_VERSION], words[wire.W_PID] = wire.MAGIC, wire.VERSION, 42
    page = struct.pack(f"={len(words)}Q", *words)
    texts: dict[str, object] = {
        wire.RESUMES_SUFFIX: {"version": 1, "folder": "/a", "pattern": "step-*"},
        wire.READ_SUFFIX: {"version": 1, "path": "/a/last.pt", "written": 1},
        wire.APPLIED_SUFFIX: {
            "version": 1,
            "asked": ["workers"],
            "told": [{"setting": "workers", "outcome": "applied", "why": ""}],
        },
        wire.RAISED_SUFFIX: {
            "version": 1, "at": 1.0, "rank": "0", "type": "E", "bases": [], "message": "",
            "place": "", "traceback": "",
        },
        wire.NOTE_SUFFIX: "a note",
    }  # fmt: skip
    readers = (
        read_pages, read_loader_facts, read_batch_split, read_size, read_resumes, read_applied,
        read_notes, read_raised, read_checkpoint,
    )  # fmt: skip

    def attempt(draw: random.Random) -> None:
        odd = bytearray(page)
        for _ in range(draw.randrange(20)):
            place = draw.randrange(3, len(words))
            struct.pack_into("=Q", odd, place * 8, draw.choice([1, 2**63, 2**64 - 1, 7]))
        (tmp_path / f"42{wire.SUFFIX}").write_bytes(
            bytes(odd) if draw.random() < 0.5 else mutated(page, draw)
        )
        for suffix, text in texts.items():
            written = json.dumps(replaced(text, draw)).encode()
            content = written if draw.random() < 0.5 else mutated(written, draw)
            (tmp_path / f"42{suffix}").write_bytes(content)
        for read in readers:
            read(tmp_path)

    all_answer("pages and notes", 60, attempt)


def test_manifests_plans_and_states(tmp_path: Path) -> None:
    folder = tmp_path / "step-000000007"
    folder.mkdir()
    plan: object = {
        "model/a": {
            "dtype": "F32",
            "size": [2, 4],
            "chunks": [
                [[0, 0], [1, 4], "rank-0.safetensors", 8, 16],
                [[1, 0], [1, 4], "rank-0.safetensors", 24, 16],
            ],
        }
    }
    state: object = {
        "world": 1,
        "state": {
            "model": {"a": {"!": "tensor", "name": "model/a"}},
            "values": {"!": "dict", "items": [[1, {"!": "tuple", "items": [1, 2]}]]},
            "seed": {"!": "bytes", "base64": "AAAA"},
        },
    }

    def attempt(draw: random.Random) -> None:
        part = draw.randrange(4)
        files = {
            "plan.json": json.dumps(replaced(plan, draw) if part == 0 else plan).encode(),
            "rank-0.json": json.dumps(replaced(state, draw) if part == 1 else state).encode(),
            "rank-0.safetensors": bytes(40),
        }
        for name, content in files.items():
            (folder / name).write_bytes(content)
        facts = [
            FileFact(name, len(content), hash_of([hashlib.sha256(content).digest()]))
            for name, content in files.items()
        ]
        text = manifest_text(7, 1, facts)
        if part == 2:
            line = json.dumps(replaced(json.loads(text.partition(b"\n")[0]), draw)).encode()
            text = line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"
        elif part == 3:
            text = mutated(text, draw)
        (folder / MANIFEST).write_bytes(text)
        assert isinstance(what_is_wrong(folder), str)

    all_answer("manifests, plans and states", 150, attempt)


def test_recordings(tmp_path: Path) -> None:
    content = (MACHINES / "rx7900xtx.json").read_bytes()
    recording = json.loads(content)
    path = tmp_path / "machine.json"

    def attempt(draw: random.Random) -> None:
        odd = json.dumps(replaced(recording, draw)).encode()
        path.write_bytes(odd if draw.random() < 0.5 else mutated(content, draw))
        with contextlib.suppress(RecordingError):
            examine(RecordedRoot(read_recording(path)), ())

    all_answer("recordings", 30, attempt)


def test_job_files(tmp_path: Path) -> None:
    text = b"""
        command = ["python", "train.py"]
        deadline = "36h"
        budget = 25
        log_limit = "200MB"
        total = { log = 'episode (?P<n>\\d+)/(?P<total>\\d+)' }
        [resume]
        arguments = ["--resume", "{checkpoint}"]
        checkpoints = ["checkpoints/*.pt"]
        [done_when]
        files = [{ path = "*.pt", kind = "model" }]
        [[stages]]
        name = "smoke"
    """
    path = tmp_path / "rocsteady.toml"

    def attempt(draw: random.Random) -> None:
        path.write_bytes(mutated(text, draw))
        with contextlib.suppress(JobError):
            read_job(path)

    all_answer("job files", 150, attempt)


@pytest.mark.parametrize("name", ["machine.json", "rocsteady.toml"])
def test_a_fifo_in_the_place_of_a_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    os.mkfifo(path)

    with pytest.raises((RecordingError, JobError), match="not a regular file"):
        (read_recording if name == "machine.json" else read_job)(path)
