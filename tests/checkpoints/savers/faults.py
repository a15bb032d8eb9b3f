"""Disks that fail, files that are damaged, pickles that are planted. Nothing wrong is ever loaded.

Every tensor and value of a state is its step, so that a state that is mixed shows.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import pickle
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rocsteady_train import Checkpointer
from rocsteady_train.checkpoints import tensor_files
from rocsteady_train.checkpoints.folder import (
    MANIFEST,
    FileFact,
    hash_of,
    manifest_text,
    name_of,
    steps,
)

CALLS = ("open", "write", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir")
HERE = "rocsteady-checkpoint"  # the thread that writes


def state_of(step: int) -> dict[str, Any]:
    return {
        "model": {f"tensor {n}": torch.full((n * 10,), step, dtype=torch.int64) for n in range(4)},
        "progress": {"step": step, "text": str(step)},
    }


def restored(folder: Path) -> tuple[int | None, list[str]]:
    """Restore as a new process would; return the step, and what was passed over."""
    fresh: dict[str, Any] = {"model": {}, "progress": {}}
    checkpointer = Checkpointer(folder)
    step = checkpointer.restore(fresh)
    if step is None:
        assert fresh == {"model": {}, "progress": {}}
    else:
        wanted = state_of(step)
        assert fresh["progress"] == wanted["progress"]
        assert fresh["model"].keys() == wanted["model"].keys()
        for name, tensor in wanted["model"].items():
            assert torch.equal(fresh["model"][name], tensor), f"{name} is not of step {step}"
    checkpointer.close()
    return step, checkpointer.passed_over


@contextlib.contextmanager
def failing(fail: Callable[[str, int, Callable[..., Any], Any], Any]) -> Iterator[Counter[str]]:
    """Hand every call of the writing thread to ``fail``, with its number; count them."""
    counts: Counter[str] = Counter()
    originals = {name: getattr(os, name) for name in CALLS}

    def patched(name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if threading.current_thread().name != HERE:
                return originals[name](*given, **named)
            counts[name] += 1
            return fail(name, counts[name], lambda *a: originals[name](*a, **named), given)

        return call

    for name in CALLS:
        setattr(os, name, patched(name))
    try:
        yield counts
    finally:
        for name, original in originals.items():
            setattr(os, name, original)


def as_it_is(name: str, number: int, call: Callable[..., Any], given: Any) -> Any:
    del name, number
    return call(*given)


def fails_at(
    call_name: str, at: int, code: int, *, for_good: bool
) -> Callable[[str, int, Callable[..., Any], Any], Any]:
    """Fail the call of one number; ``for_good``: and every call of its kind after it."""

    def fail(name: str, number: int, call: Callable[..., Any], given: Any) -> Any:
        if name == call_name and (number == at or (for_good and number > at)):
            raise OSError(code, os.strerror(code))
        return call(*given)

    return fail


def takes_less(at: int, code: int) -> Callable[[str, int, Callable[..., Any], Any], Any]:
    """Let one write take a part only; then go on, or fail with a code."""

    def fail(name: str, number: int, call: Callable[..., Any], given: Any) -> Any:
        if name == "write" and number == at:
            return call(given[0], given[1][: max(1, len(given[1]) // 2)])
        if name == "write" and number == at + 1 and code:
            raise OSError(code, os.strerror(code))
        return call(*given)

    return fail


def survives(
    folder: Path, said: list[str], fail: Callable[[str, int, Callable[..., Any], Any], Any]
) -> bool:
    """Save three times, the second with a fault. Tell whether it was saved all the same."""
    said.clear()
    checkpointer = Checkpointer(folder, keep=1)
    checkpointer.save(1, state_of(1), wait=True)
    assert said == []
    with failing(fail):
        checkpointer.save(2, state_of(2))
        checkpointer.wait()
    good = checkpointer.newest == 2
    assert (checkpointer.newest, bool(checkpointer.failed)) == ((2, False) if good else (1, True))
    assert checkpointer.newest in (1, 2)
    assert good or any("step 2 was not saved" in text for text in said), said
    checkpointer.close()
    step, passed_over = restored(shutil.copytree(folder, folder.with_name("copy")))
    shutil.rmtree(folder.with_name("copy"))
    # Not sure to be on the disk is not the same as not there: a folder of step 2 is whole, or gone.
    assert step == (2 if good or (folder / name_of(2)).exists() else 1)
    assert passed_over == []
    checkpointer = Checkpointer(folder, keep=1)
    assert checkpointer.restore({"model": {}, "progress": {}}) == step
    checkpointer.save(3, state_of(3), wait=True)
    assert checkpointer.newest == 3
    checkpointer.close()
    assert restored(folder) == (3, [])
    assert (folder / "latest").read_text() == f"{name_of(3)}\n"
    assert not list(folder.glob("unfinished-*"))
    shutil.rmtree(folder)
    return good


def case_a_fault_at_every_call_of_a_save(folder: Path, said: list[str]) -> None:
    checkpointer = Checkpointer(folder / "count", keep=1)
    checkpointer.save(1, state_of(1), wait=True)
    with failing(as_it_is) as counts:
        checkpointer.save(2, state_of(2), wait=True)
    checkpointer.close()
    assert all(
        counts[name] >= least
        for name, least in {"write": 8, "fsync": 8, "mkdir": 1, "rename": 2, "replace": 1}.items()
    ), counts
    lost = saved = 0
    for name in CALLS:
        for at in range(1, counts[name] + 1):
            for code in (errno.ENOSPC, errno.EIO):
                for for_good in (False, True):
                    fail = fails_at(name, at, code, for_good=for_good)
                    good = survives(folder / "fault", said, fail)
                    lost, saved = lost + (not good), saved + good
    assert lost > 50
    assert saved > 5, "what comes after the checkpoint is whole does not undo it"


def case_a_write_that_takes_less(folder: Path, said: list[str]) -> None:
    checkpointer = Checkpointer(folder / "count", keep=1)
    with failing(as_it_is) as counts:
        checkpointer.save(2, state_of(2), wait=True)
    checkpointer.close()
    for at in range(1, counts["write"] + 1):
        assert survives(folder / "fault", said, takes_less(at, 0))
        assert said == []
        if at < counts["write"]:
            survives(folder / "fault", said, takes_less(at, errno.ENOSPC))
            assert len(said) == 1


def three(folder: Path) -> Path:
    """Make a folder with checkpoints of steps 1, 2 and 3."""
    checkpointer = Checkpointer(folder)
    for step in (1, 2, 3):
        checkpointer.save(step, state_of(step), wait=True)
    checkpointer.close()
    return folder


def damages(path: Path) -> Iterator[str]:
    """Damage a file in every way, one after the other; each time it is the whole one first."""
    content = path.read_bytes()
    draw = random.Random(path.name)
    places = {0, 7, 8, len(content) // 2, len(content) - 1}
    places |= {draw.randrange(len(content)) for _ in range(12)}
    for at in sorted(places):
        flipped = content[at] ^ (1 << draw.randrange(8))
        path.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
        yield f"{path.name}: byte {at} flipped"
    for length in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        yield f"{path.name}: cut to {length}"
    path.write_bytes(content + b"\0")
    yield f"{path.name}: longer"
    path.write_bytes(bytes(len(content)))
    yield f"{path.name}: zeros"
    path.unlink()
    yield f"{path.name}: missing"
    path.mkdir()
    yield f"{path.name}: a folder"
    path.rmdir()
    path.write_bytes(content)


def case_every_damage_is_passed_over_and_set_aside(folder: Path, said: list[str]) -> None:
    whole = three(folder / "whole")
    names = [path.name for path in (whole / name_of(3)).iterdir()]
    assert len(names) == 4
    tried = 0
    for name in names:
        for damage in damages(whole / name_of(3) / name):
            said.clear()
            broken = shutil.copytree(whole, folder / "broken")
            step, passed_over = restored(broken)
            assert step == 2, damage
            assert len(passed_over) == 1
            assert passed_over[0].startswith("step-000000003 "), passed_over
            assert len(said) == 1
            assert "skipped" in said[0]
            assert (broken / "set-aside" / name_of(3)).is_dir()
            assert [step for step, _ in steps(broken)] == [2, 1]
            assert restored(broken) == (2, []), "the next restore has nothing to say"
            shutil.rmtree(broken)
            tried += 1
    assert tried > 80


def case_more_than_one_is_damaged(folder: Path, said: list[str]) -> None:
    three(folder)
    for broken in (2, 3):
        (folder / name_of(broken) / "plan.json").unlink()
    step, passed_over = restored(folder)
    assert step == 1
    assert passed_over == ["step-000000003 has no plan.json", "step-000000002 has no plan.json"]
    checkpointer = Checkpointer(folder)
    checkpointer.restore({"model": {}, "progress": {}})
    checkpointer.save(3, state_of(3), wait=True)  # trained again, and damaged again
    checkpointer.close()
    for broken in (1, 3):
        (folder / name_of(broken) / MANIFEST).unlink()
    step, passed_over = restored(folder)
    assert step is None
    assert [text.split()[0] for text in passed_over] == [name_of(3), name_of(1)]
    aside = sorted(path.name for path in (folder / "set-aside").iterdir())
    assert aside == [name_of(1), name_of(2), name_of(3), f"{name_of(3)}-2"]
    assert len(said) == 4


def case_the_pointer_is_for_people_and_decides_nothing(folder: Path, said: list[str]) -> None:
    three(folder)
    for text in (b"step-000000001\n", b"step-000000099\n", b"", b"\xff\0../../etc", None):
        (folder / "latest").unlink(missing_ok=True)
        if text is not None:
            (folder / "latest").write_bytes(text)
        assert restored(folder) == (3, [])
    assert said == []


def case_folders_of_mixed_steps_are_found(folder: Path, said: list[str]) -> None:
    """Each file of step 3 is replaced by the whole file of step 2, of the same size."""
    whole = three(folder / "whole")
    for name in ("rank-0.safetensors", "rank-0.json", MANIFEST):
        mixed = shutil.copytree(whole, folder / name)
        shutil.copy(mixed / name_of(2) / name, mixed / name_of(3) / name)
        step, passed_over = restored(mixed)
        assert (step, len(passed_over)) == (2, 1)
    assert len(said) == 3


class Planted:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._mark),)


NAMES = (
    ".metadata",
    "data.pkl",
    "checkpoint.pt",
    "rank-0.distcp",
    "__0_0.distcp",
    "rank-0.pt",
    "rank-0.json",
    "plan.json",
    "rank-0.safetensors",
    MANIFEST,
)


def sign(folder: Path, step: int) -> None:
    """Write the manifest anew, as one would who wants the planted file to be believed."""
    (folder / MANIFEST).unlink(missing_ok=True)
    contents = {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}
    facts = [
        FileFact(name, len(text), hash_of([hashlib.sha256(text).digest()]))
        for name, text in contents.items()
    ]
    (folder / MANIFEST).write_bytes(manifest_text(step, 3, facts))


NONSENSE: dict[str, tuple[Any, ...]] = {
    "plan.json": (
        [],
        {"model/tensor 1": None},
        {"model/tensor 1": {"dtype": "I64", "size": [1e400], "chunks": []}},
        {"model/tensor 1": {"dtype": "F7", "size": [10], "chunks": []}},
        {"model/tensor 1": {"dtype": "I64", "size": [10], "chunks": [[0], [10], "x", 0, 80]}},
        {},
    ),
    "rank-0.json": (
        [],
        {},
        {"world": 1e400, "state": {}},
        {"world": 0, "state": {"model": {}, "progress": {}}},
        {"world": 1, "state": []},
        {"world": 1, "state": {"model": None, "progress": {}}},
        {"world": 1, "state": {"model": {}, "progress": 1}},
        {"world": 1, "state": {"model": {}, "progress": "x"}},
        {"world": 1, "state": {"model": {}, "progress": {"!": "tuple", "items": [1]}}},
        {"world": 1, "state": {"model": {"!": "tensor"}, "progress": {}}},
        {"world": 1, "state": {"model": {}, "progress": {"!": "dict", "items": [[[], 1]]}}},
        {"world": 1, "state": {"model": {}, "progress": {"!": "scalar", "dtype": "O"}}},
    ),
}


def case_signed_nonsense_falls_back_to_the_one_before(folder: Path, said: list[str]) -> None:
    whole = three(folder / "whole")
    for name, contents in NONSENSE.items():
        for content in contents:
            planted = shutil.copytree(whole, folder / "planted")
            (planted / name_of(3) / name).write_text(json.dumps(content))
            sign(planted / name_of(3), 3)
            step, passed_over = restored(planted)
            assert (step, len(passed_over)) == (2, 1), (name, content)
            shutil.rmtree(planted)
    assert len(said) == sum(map(len, NONSENSE.values()))


def case_files_that_the_manifest_does_not_list_are_not_read(folder: Path, said: list[str]) -> None:
    whole = three(folder / "whole")
    for unlisted in ("rank-0.safetensors", "rank-0.json", "plan.json", None):
        planted = shutil.copytree(whole, folder / "planted")
        manifest = planted / name_of(3) / MANIFEST
        files = json.loads(manifest.read_bytes().partition(b"\n")[0])["files"]
        listed = [
            FileFact(name, *facts)
            for name, facts in files.items()
            if unlisted is not None and name != unlisted
        ]
        manifest.write_bytes(manifest_text(3, 3, listed))
        step, passed_over = restored(planted)
        assert (step, len(passed_over)) == (2, 1), unlisted
        shutil.rmtree(planted)
    assert len(said) == 4


def case_nothing_is_copied_from_a_mapping_of_a_file(folder: Path, said: list[str]) -> None:
    """Neither to another dtype, nor to memory with gaps, nor to a part; as to a GPU."""
    rows = torch.arange(6 << 20, dtype=torch.float32).reshape(3, -1)  # more than is read at a time
    state = {"model": {"rows": rows, "one": torch.tensor(7.0), "none": torch.empty(0, 3)}}
    saving = Checkpointer(folder)
    saving.save(1, state, wait=True)
    saving.close()
    mapped = mmap.mmap
    try:
        mmap.mmap = None  # type: ignore[assignment, misc]
        wide = torch.zeros(3, 4 << 20)
        fresh = {
            "model": {"rows": wide[:, ::2], "one": torch.zeros(2)[1], "none": torch.empty(3, 0).T}
        }
        assert rows.nbytes > tensor_files.STAGED
        restoring = Checkpointer(folder)
        assert restoring.restore(fresh) == 1
        restoring.close()
    finally:
        mmap.mmap = mapped  # type: ignore[misc]
    assert torch.equal(fresh["model"]["rows"], rows)
    assert fresh["model"]["one"] == 7
    assert said == []


def case_a_planted_pickle_is_never_executed(folder: Path, said: list[str]) -> None:
    mark = folder / "executed"
    content = pickle.dumps(Planted(mark))
    pickle.loads(content)  # noqa: S301 - it is armed
    mark.rmdir()
    whole = three(folder / "whole")
    for name in NAMES:
        planted = shutil.copytree(whole, folder / "planted")
        (planted / name_of(3) / name).write_bytes(content)
        (planted / name).write_bytes(content)
        (planted / "latest").write_bytes(content)
        step, passed_over = restored(planted)
        assert not mark.exists()
        ours = (whole / name_of(3) / name).exists()
        assert (step, len(passed_over)) == ((2, 1) if ours else (3, 0))
        shutil.rmtree(planted)
        if name == MANIFEST:
            continue
        signed = shutil.copytree(whole, folder / "signed")
        (signed / name_of(3) / name).write_bytes(content)
        sign(signed / name_of(3), 3)
        step, passed_over = restored(signed)
        assert (step, len(passed_over)) == ((2, 1) if ours else (3, 0)), name
        assert not mark.exists()
        shutil.rmtree(signed)
    assert len(said) == 7


def case_nothing_is_pickled_or_unpickled(folder: Path, said: list[str]) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a pickle")

    modules = {
        pickle: ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"),
        torch: ("load", "save"),
    }
    originals = {
        (module, name): getattr(module, name) for module, names in modules.items() for name in names
    }
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    for module, name in originals:
        setattr(module, name, refuse)
    try:
        state = {"model": model, "optimizer": optimizer, "progress": {"step": 1}}
        checkpointer = Checkpointer(folder)
        checkpointer.save(1, state, wait=True)
        assert checkpointer.newest == 1
        assert checkpointer.restore(state) == 1
        checkpointer.close()
    finally:
        for (module, name), original in originals.items():
            setattr(module, name, original)
    assert said == []


def case_a_plan_that_looks_elsewhere_falls_back(folder: Path, said: list[str]) -> None:
    three(folder)
    plan = json.loads((folder / name_of(3) / "plan.json").read_text())
    for entry in plan.values():
        for chunk in entry["chunks"]:
            chunk[2] = f"../{name_of(2)}/rank-0.safetensors"
    (folder / name_of(3) / "plan.json").write_text(json.dumps(plan))
    sign(folder / name_of(3), 3)
    step, passed_over = restored(folder)
    assert step == 2
    assert "in places where it cannot be" in passed_over[0]
    assert len(said) == 1
