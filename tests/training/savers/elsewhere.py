"""Copies at another place: a folder behind fsspec that fails when it is told to."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import torch
from fsspec.implementations.local import LocalFileSystem

from rocsteady import Checkpointer
from rocsteady.checkpoint_folder import MANIFEST, name_of, steps, what_is_wrong
from rocsteady.errors import CheckpointError

CALLS = ("makedirs", "put_file", "info", "pipe_file", "cat_file", "ls", "get_file")


class Faulty(LocalFileSystem):
    """A folder whose calls are counted, and of which one may fail."""

    protocol = "faulty"
    cachable = False
    calls = 0
    fails_at: Callable[[int, str], bool] = staticmethod(lambda number, name: False)  # noqa: ARG005
    halves = False  # a file is sent, or fetched, in part before it fails
    silent = False  # it then does not even fail

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(LocalFileSystem._strip_protocol(str(path).removeprefix("faulty://")))

    def _call(self, name: str, *given: Any, **named: Any) -> Any:
        Faulty.calls += 1
        if not Faulty.fails_at(Faulty.calls, name):
            return getattr(super(), name)(*given, **named)
        if self.halves and name in ("put_file", "get_file"):
            content = Path(self._strip_protocol(given[0])).read_bytes()
            Path(self._strip_protocol(given[1])).write_bytes(content[: len(content) // 2])
            if self.silent:
                return None
        raise ConnectionError(f"{name}: the network is down")

    def makedirs(self, *given: Any, **named: Any) -> Any:
        return self._call("makedirs", *given, **named)

    def put_file(self, *given: Any, **named: Any) -> Any:
        return self._call("put_file", *given, **named)

    def info(self, *given: Any, **named: Any) -> Any:
        return self._call("info", *given, **named)

    def pipe_file(self, *given: Any, **named: Any) -> Any:
        return self._call("pipe_file", *given, **named)

    def cat_file(self, *given: Any, **named: Any) -> Any:
        return self._call("cat_file", *given, **named)

    def ls(self, *given: Any, **named: Any) -> Any:
        return self._call("ls", *given, **named)

    def get_file(self, *given: Any, **named: Any) -> Any:
        return self._call("get_file", *given, **named)


fsspec.register_implementation("faulty", Faulty)


def well() -> None:
    Faulty.fails_at = staticmethod(lambda number, name: False)  # noqa: ARG005
    Faulty.calls, Faulty.halves, Faulty.silent = 0, False, False


def at(number: int) -> None:
    """Let the call of one number fail, from here on."""
    Faulty.calls = 0
    Faulty.fails_at = staticmethod(lambda count, name: count == number)  # noqa: ARG005


def down() -> None:
    Faulty.fails_at = staticmethod(lambda number, name: True)  # noqa: ARG005


def state_of(step: int) -> dict[str, Any]:
    return {"model": {"tensor": torch.full((1000,), step)}, "progress": {"step": step}}


def saved(here: Path, there: Path, *all_steps: int, kind: str = "faulty") -> None:
    checkpointer = Checkpointer(here, remote=f"{kind}://{there}")
    for step in all_steps:
        checkpointer.save(step, state_of(step), wait=True)
    checkpointer.close()


def restored(
    here: Path, there: Path, kind: str = "faulty", start: Path | None = None
) -> tuple[int | None, list[str]]:
    """Restore, and look at every value; return the step and what was passed over."""
    fresh: dict[str, Any] = {"model": {}, "progress": {}}
    checkpointer = Checkpointer(here, remote=f"{kind}://{there}")
    try:
        step = checkpointer.restore(fresh, start=start)
    finally:
        checkpointer.close()
        assert not list(here.glob("unfinished-*")), "nothing is left of a copy that failed"
    if step is None:
        assert fresh == {"model": {}, "progress": {}}
    else:
        assert fresh["progress"] == {"step": step}
        assert torch.equal(fresh["model"]["tensor"], torch.full((1000,), step))
    return step, checkpointer.passed_over


def refused(here: Path, there: Path) -> str:
    try:
        restored(here, there)
    except CheckpointError as error:
        return str(error)
    raise AssertionError("it was not refused")


def pointer(there: Path) -> str | None:
    """Read the pointer; what it names must be complete."""
    path = there / "latest"
    if not path.exists():
        return None
    name = path.read_text().strip()
    assert what_is_wrong(there / name) == ""
    return name


def case_a_new_machine_goes_on_from_the_copy(folder: Path, said: list[str]) -> None:
    there = folder / "there"
    saved(folder / "first", there, 1, 2, 3, kind="file")
    assert pointer(there) == name_of(3)
    assert restored(folder / "second", there, kind="file") == (3, [])
    checkpointer = Checkpointer(folder / "second", remote=f"file://{there}")
    checkpointer.restore({"model": {}, "progress": {}})
    checkpointer.save(4, state_of(4), wait=True)
    checkpointer.close()
    assert pointer(there) == name_of(4)
    assert restored(folder / "third", there, kind="file") == (4, [])
    assert restored(folder / "fourth", folder / "nothing", kind="file") == (None, [])
    assert said == []


def kinds_of_failure() -> Iterator[tuple[bool, bool]]:
    yield False, False
    yield True, False
    yield True, True


def case_the_pointer_never_names_a_copy_that_is_not_complete(folder: Path, said: list[str]) -> None:
    well()
    saved(folder / "count", folder / "counted", 1)
    count = Faulty.calls
    assert count == 10  # a folder, four files and their sizes, the pointer
    for halves, silent in kinds_of_failure():
        for number in range(1, count + 1):
            well()
            here, there = folder / "here", folder / "there"
            checkpointer = Checkpointer(here, remote=f"faulty://{there}")
            checkpointer.save(1, state_of(1), wait=True)
            said.clear()
            at(number)
            Faulty.halves, Faulty.silent = halves, silent
            checkpointer.save(2, state_of(2), wait=True)
            assert checkpointer.saved == 2, "it is on the disk here in any case"
            well()
            assert pointer(there) == name_of(1), number
            assert len(said) == 1, said
            assert "step-000000002 was not copied to faulty://" in said[0]
            assert restored(folder / "new", there) == (1, [])
            checkpointer.save(3, state_of(3), wait=True)
            assert pointer(there) == name_of(3)
            checkpointer.close()
            for path in (here, there, folder / "new"):
                shutil.rmtree(path)


def case_a_copy_to_here_that_fails_is_told_and_can_be_made_again(
    folder: Path, said: list[str]
) -> None:
    well()
    there = folder / "there"
    saved(folder / "first", there, 1)
    Faulty.calls = 0
    assert restored(folder / "count", there) == (1, [])
    count = Faulty.calls
    assert count >= 6
    for halves, silent in kinds_of_failure():
        for number in range(1, count + 1):
            well()
            at(number)
            Faulty.halves, Faulty.silent = halves, silent
            here = folder / f"{number}-{halves}-{silent}"
            try:
                step, passed_over = restored(here, there)
                assert halves
                assert silent, "what failed was told"
                assert (step, len(passed_over)) in ((None, 1), (1, 0))
            except CheckpointError as error:
                assert "the network is down" in str(error)
            well()
            assert restored(here, there) == (1, [])
    assert all("it is skipped" in text for text in said)


def case_without_a_network_what_is_here_is_used(folder: Path, said: list[str]) -> None:
    well()
    saved(folder / "here", folder / "there", 1, 2)
    down()
    assert restored(folder / "here", folder / "there") == (2, [])
    assert said == []
    assert "the network is down" in refused(folder / "empty", folder / "there")
    (folder / "here" / name_of(1) / "plan.json").unlink()
    (folder / "here" / name_of(2) / "plan.json").unlink()
    assert "the network is down" in refused(folder / "here", folder / "there")
    well()
    assert restored(folder / "here", folder / "there") == (2, []), "what is broken here is there"


def flip(path: Path) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


def case_a_flipped_byte_there_is_found_here(folder: Path, said: list[str]) -> None:
    well()
    there = folder / "there"
    saved(folder / "first", there, 1, 2)
    for name in ("rank-0.safetensors", "rank-0.json", "plan.json", MANIFEST):
        said.clear()
        flip(there / name_of(2) / name)
        here = folder / name
        step, passed_over = restored(here, there)
        assert step == 1, "the one before"
        assert len(passed_over) == 1
        assert len(said) == 1
        assert [step for step, _ in steps(here)] == [1]
        flip(there / name_of(2) / name)
    for step in (1, 2):
        flip(there / name_of(step) / "plan.json")
    step, passed_over = restored(folder / "both", there)
    assert (step, len(passed_over)) == (None, 2)


def case_only_what_the_manifest_names_is_taken(folder: Path, said: list[str]) -> None:
    well()
    there = folder / "there"
    saved(folder / "first", there, 1)
    (there / name_of(1) / ".metadata").write_bytes(b"a pickle")
    (there / name_of(1) / "more").mkdir()
    (there / name_of(2)).mkdir()  # newer than the pointer: not complete
    assert restored(folder / "here", there) == (1, [])
    wanted = {"manifest.json", "plan.json", "rank-0.json", "rank-0.safetensors"}
    assert {path.name for path in (folder / "here" / name_of(1)).iterdir()} == wanted
    assert said == []


def case_a_pointer_that_names_nothing(folder: Path, said: list[str]) -> None:
    well()
    there = folder / "there"
    saved(folder / "first", there, 1, 2)
    for text in ("../../etc", "", "step-1", "\0"):
        (there / "latest").write_text(text)
        assert "no checkpoint" in refused(folder / "here", there)
    (there / "latest").write_text(name_of(2))
    shutil.rmtree(there / name_of(2))
    assert restored(folder / "here", there) == (1, [])
    assert said == []


def case_what_was_asked_for_is_taken_from_there(folder: Path, said: list[str]) -> None:
    well()
    there = folder / "there"
    saved(folder / "first", there, 1, 2, 3)
    assert restored(folder / "here", there, start=Path(name_of(2))) == (2, [])
    assert said == []
