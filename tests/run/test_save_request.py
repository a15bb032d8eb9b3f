"""A process that trains is asked for a checkpoint through its page."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import pytest
import rocsteady_train
from rocsteady_train.inside import wire
from supervised import Project, until

from rocsteady.run.attempt.injection import ask_to_save

WORDS = wire.SIZE // 8
HURRIED = Path(__file__).parents[1] / "victims" / "hurried.py"
SLOW_FOR_A_WHILE = """
    import pathlib, time
    import torch
    from torch import nn
    import rocsteady_train

    def main():
        model = nn.Linear(4, 1)
        data = [(torch.randn(4), torch.randn(1)) for _ in range(240)]
        loop = rocsteady_train.Loop(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
            loader=torch.utils.data.DataLoader(data, batch_size=1),
            epochs=1,
            lose_at_most=3600,
        )
        for batch in loop:
            if loop.steps == 120:
                time.sleep(6)
            time.sleep(0.01)
            loop.step(batch, lambda part: (model(part[0]) - part[1]).square().mean())

    main()
"""


def write_page(folder: Path, pid: int, **told: int) -> Path:
    words = [0] * WORDS
    always = {"W_MAGIC": wire.MAGIC, "W_VERSION": wire.VERSION, "W_PID": pid}
    for name, word in {**always, **told}.items():
        words[getattr(wire, name)] = word
    path = folder / f"{pid}{wire.SUFFIX}"
    path.write_bytes(struct.pack(f"={WORDS}Q", *words))
    return path


def words_of(path: Path) -> list[int]:
    return list(struct.unpack(f"={WORDS}Q", path.read_bytes()))


def test_one_word_grows_and_nothing_else_changes(tmp_path: Path) -> None:
    path = write_page(tmp_path, 7, W_STEP=5, W_SAVE=3)
    before = words_of(path)

    ask_to_save(tmp_path)

    after = words_of(path)
    assert after[wire.W_SAVE] == 4
    assert after[: wire.W_SAVE] + after[wire.W_SAVE + 1 :] == (
        before[: wire.W_SAVE] + before[wire.W_SAVE + 1 :]
    )


def test_what_is_no_page_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "8.page").write_bytes(b"short")
    (tmp_path / "9.page").write_bytes(bytes(wire.SIZE))

    ask_to_save(tmp_path)
    ask_to_save(tmp_path / "gone")

    assert (tmp_path / "8.page").read_bytes() == b"short"
    assert (tmp_path / "9.page").read_bytes() == bytes(wire.SIZE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["8.page", "9.page"]


@pytest.mark.skipif(os.name == "nt", reason="a link needs a right there")
def test_a_link_is_not_followed(tmp_path: Path) -> None:
    pages, elsewhere = tmp_path / "pages", tmp_path / "elsewhere"
    pages.mkdir()
    elsewhere.mkdir()
    theirs = write_page(elsewhere, 7, W_STEP=5)
    (pages / "7.page").symlink_to(theirs)

    ask_to_save(pages)

    assert words_of(theirs)[wire.W_SAVE] == 0


def test_before_the_first_step_there_is_nothing_to_save(tmp_path: Path) -> None:
    path = write_page(tmp_path, 7)

    ask_to_save(tmp_path)

    assert words_of(path)[wire.W_SAVE] == 0


def test_every_rank_is_asked(tmp_path: Path) -> None:
    paths = [write_page(tmp_path, 7 + rank, W_STEP=5, W_RANK=rank + 1) for rank in range(2)]

    ask_to_save(tmp_path)

    assert [words_of(path)[wire.W_SAVE] for path in paths] == [1, 1]


@pytest.mark.ci
@pytest.mark.slow
def test_a_script_that_was_suspected_saves_at_its_next_step(
    project: Project, torch_python: str
) -> None:
    project.program = (sys.executable, str(HURRIED))
    project.environment["PYTHONPATH"] = str(Path(rocsteady_train.__file__).parents[1])
    script = project.script(SLOW_FOR_A_WHILE)
    saved: set[str] = set()

    child = project.start("--", torch_python, script)

    def is_over() -> bool:
        saved.update(path.name for path in project.folder.glob("checkpoints/step-*"))
        return child.poll() is not None

    until(is_over, 180)
    ended = project.ended(child)

    assert ended.code == 0, ended.err
    assert saved == {"step-000000121", "step-000000240"}
