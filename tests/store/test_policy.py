"""The administrator's file: read whole, or refused with one line that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocsteady.errors import JobError
from rocsteady.store.location import existing_places, find_place
from rocsteady.store.policy import VARIABLE, Mode, Policy, read_policy


def policy(folder: Path, text: str) -> Policy:
    path = folder / "policy.toml"
    path.write_text(text)
    return read_policy({VARIABLE: str(path)})


def test_without_a_file_everything_is_allowed() -> None:
    assert read_policy({}) == Policy()


def test_every_setting_is_read(tmp_path: Path) -> None:
    text = 'mode = "retry"\nworkarounds = ["loader-inline"]\njournals = "/scratch/rocsteady"\n'

    assert policy(tmp_path, text) == Policy(
        path=str(tmp_path / "policy.toml"),
        mode=Mode.RETRY,
        workarounds=("loader-inline",),
        journals=Path("/scratch/rocsteady"),
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('mode = "soon"', ":1: mode: "),
        ("mode = 3", ":1: mode: "),
        ('mode = "retry"\nworkarounds = "cpu"', ":2: workarounds: "),
        ("workarounds = [1]", ":1: workarounds: "),
        ('\njournals = "here"', ":2: journals: "),
        ("colour = 1", ":1: colour: "),
        ('mode = "retry"\n[mod]\nx = 1', ":2: mod: "),
        ("mode = ", "end of document"),
        ("\x00", "line 1"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(JobError) as refused:
        policy(tmp_path, text)

    assert "policy.toml" in str(refused.value)
    assert place in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_named_and_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(JobError):
            read_policy({VARIABLE: str(path)})


def test_journals_go_where_the_administrator_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, scratch, state = (tmp_path / name for name in ("project", "scratch", "state"))
    project.mkdir()
    before = find_place(project, state=state)
    before.database.touch()
    file = tmp_path / "policy.toml"
    file.write_text(f'journals = "{scratch}"')
    monkeypatch.setenv(VARIABLE, str(file))

    place = find_place(project, state=state)
    place.database.touch()

    assert place.folder.parent == scratch
    assert place.folder.stat().st_mode & 0o077 == 0
    found = [each.folder for each in existing_places(project, state=state)]
    assert found == [place.folder, before.folder]  # what was recorded before is still found
