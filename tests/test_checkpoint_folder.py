"""Whatever happens to a checkpoint's files, it is found before anything is read from them."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocsteady_train.checkpoints.folder import (
    BLOCK,
    MANIFEST,
    MANIFEST_LIMIT,
    BrokenError,
    FileFact,
    Manifest,
    check,
    hash_of,
    is_ours,
    manifest_text,
    name_of,
    read_manifest,
    step_of,
    steps,
    what_is_wrong,
)

CONTENT = {
    "rank-0.safetensors": bytes(range(256)) * 20,
    "rank-0.json": b'{"world":1,"state":{}}',
    "plan.json": b"{}",
}


def fact(name: str, content: bytes) -> FileFact:
    blocks = [content[at : at + BLOCK] for at in range(0, len(content), BLOCK)]
    return FileFact(name, len(content), hash_of(hashlib.sha256(block).digest() for block in blocks))


def add(root: Path, step: int = 1200, number: int = 7) -> Path:
    """Write a checkpoint that is whole."""
    folder = root / name_of(step)
    folder.mkdir(parents=True)
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
    facts = [fact(name, content) for name, content in CONTENT.items()]
    (folder / MANIFEST).write_bytes(manifest_text(step, number, facts))
    return folder


def sign(folder: Path, content: object) -> None:
    """Write a manifest that says what it likes, with the right hash of itself."""
    line = json.dumps(content).encode()
    text = line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"
    (folder / MANIFEST).write_bytes(text)


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    files = tuple(sorted((fact(*item) for item in CONTENT.items()), key=lambda file: file.name))

    manifest = read_manifest(add(tmp_path))

    assert manifest == Manifest(step=1200, number=7, files=files)
    assert manifest.size == sum(map(len, CONTENT.values()))


def test_a_whole_one_has_nothing_wrong(tmp_path: Path) -> None:
    assert what_is_wrong(add(tmp_path)) == ""


@given(step=st.integers(0, 10**18 - 1))
def test_a_step_comes_back_from_the_name(step: int) -> None:
    assert step_of(Path("checkpoints") / name_of(step)) == step


@pytest.mark.parametrize(
    "name", ["latest", "step-12", "step-00000001x", "unfinished-step-000000001", "step--00000001"]
)
def test_other_names_are_not_ours(name: str) -> None:
    assert step_of(Path(name)) is None


def test_checkpoints_are_listed_newest_first_by_number(tmp_path: Path) -> None:
    for step in (999_999_999, 5, 1_000_000_000):
        add(tmp_path, step)
    (tmp_path / "set-aside").mkdir()
    (tmp_path / "step-000000009").write_text("a file, not a folder")

    assert [step for step, _ in steps(tmp_path)] == [1_000_000_000, 999_999_999, 5]
    assert steps(tmp_path / "nowhere") == []


def test_ours_has_our_name_and_a_manifest(tmp_path: Path) -> None:
    folder = add(tmp_path)
    assert is_ours(folder)
    (folder / MANIFEST).unlink()
    assert not is_ours(folder)


def test_each_kind_of_damage_is_named(tmp_path: Path) -> None:
    folder = add(tmp_path)
    data, original = folder / "rank-0.safetensors", CONTENT["rank-0.safetensors"]

    data.write_bytes(original[:-1])
    assert what_is_wrong(folder) == "has 5119 bytes of 5120 in rank-0.safetensors"
    data.write_bytes(original[:-1] + b"x")
    assert what_is_wrong(folder) == "has other bytes in rank-0.safetensors than were written"
    data.unlink()
    assert what_is_wrong(folder) == "has no rank-0.safetensors"
    data.mkdir()
    assert what_is_wrong(folder) == "has an unreadable rank-0.safetensors: not a regular file"
    (folder / MANIFEST).write_bytes(b"\x80\x04K\x01.")  # a pickle
    assert what_is_wrong(folder) == "has a damaged manifest"
    (folder / MANIFEST).unlink()
    assert what_is_wrong(folder) == "has no manifest: it was not finished"
    (folder / MANIFEST).mkdir()
    assert what_is_wrong(folder) == "cannot be read: not a regular file"


def test_a_folder_under_another_steps_name_is_found(tmp_path: Path) -> None:
    folder = add(tmp_path).rename(tmp_path / name_of(1300))
    assert what_is_wrong(folder) == "says in its manifest that it is of step 1200"


def test_another_format_is_named(tmp_path: Path) -> None:
    folder = add(tmp_path)
    sign(folder, {"version": 2, "step": 1200, "number": 1, "files": {}})
    assert what_is_wrong(folder) == "is of format 2, and this reads 1"


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_flipped_byte_truncation_or_missing_file_is_found(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = add(Path(root))
        path = folder / data.draw(st.sampled_from([MANIFEST, *CONTENT]))
        content = path.read_bytes()
        at = data.draw(st.integers(0, len(content) - 1))
        damage = data.draw(st.sampled_from(["flip", "truncate", "grow", "remove"]))
        if damage == "flip":
            flipped = content[at] ^ data.draw(st.integers(1, 255))
            path.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
        elif damage == "truncate":
            path.write_bytes(content[:at])
        elif damage == "grow":
            path.write_bytes(content + b"\n")
        else:
            path.unlink()

        assert what_is_wrong(folder) != ""


@pytest.mark.parametrize(
    "name",
    ["../outside", "/etc/passwd", "a/b", "..", ".", "", ".hidden", "a\\b", "a\0b", "a" * 300],
)
def test_a_file_that_is_not_in_the_folder_is_never_looked_for(tmp_path: Path, name: str) -> None:
    folder = add(tmp_path / "checkpoints")
    (tmp_path / "outside").write_bytes(b"")
    facts = [0, hashlib.sha256(b"").hexdigest()]
    sign(folder, {"version": 1, "step": 1200, "number": 1, "files": {name: facts}})

    with pytest.raises(BrokenError, match="names a file that is not in it"):
        read_manifest(folder)


@pytest.mark.parametrize(
    "content",
    [
        [],
        None,
        7,
        "text",
        {},
        {"version": 1},
        {"version": 1, "step": 1200, "number": 1, "files": ["a"]},
        {"version": 1, "step": 1200, "number": 1, "files": {"a": 1}},
        {"version": 1, "step": 1200, "number": 1, "files": {"a": [1]}},
        {"version": 1, "step": 1200, "number": 1, "files": {"a": ["x", "y"]}},
        {"version": 1, "step": 1200, "number": None, "files": {}},
    ],
)
def test_a_manifest_that_makes_no_sense_is_broken_not_a_crash(
    tmp_path: Path, content: object
) -> None:
    folder = add(tmp_path)
    sign(folder, content)
    assert what_is_wrong(folder) == "has a manifest that cannot be understood"


def test_a_manifest_without_an_end_is_broken_not_a_crash(tmp_path: Path) -> None:
    folder = add(tmp_path)
    line = b"[" * 200_000
    text = line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"
    (folder / MANIFEST).write_bytes(text)
    assert what_is_wrong(folder) == "has a manifest that cannot be understood"


def test_a_manifest_of_100_000_ranks_fits(tmp_path: Path) -> None:
    files = [
        FileFact(f"rank-{rank}.{kind}", 10**13, "0" * 64)
        for rank in range(100_000)
        for kind in ("safetensors", "json")
    ]
    files.append(FileFact("plan.json", 10**9, "0" * 64))
    folder = tmp_path / name_of(1)
    folder.mkdir()
    text = manifest_text(1, 1, files)
    (folder / MANIFEST).write_bytes(text)

    assert len(text) < MANIFEST_LIMIT
    found = read_manifest(folder).files
    assert len(found) == len(files)
    assert {found[0], found[-1]} <= set(files)


def test_no_more_of_a_huge_manifest_is_read_than_the_limit(tmp_path: Path) -> None:
    folder = add(tmp_path)
    with (folder / MANIFEST).open("wb") as stream:
        stream.truncate(MANIFEST_LIMIT * 1000)  # takes no room on the disk
    assert what_is_wrong(folder) == f"cannot be read: larger than {MANIFEST_LIMIT} bytes"


def test_a_flipped_byte_in_any_block_of_a_large_file_is_found(tmp_path: Path) -> None:
    folder, content = add(tmp_path, 1), bytes(2 * BLOCK + 5)
    (folder / "large").write_bytes(content)
    facts = [fact(*item) for item in (CONTENT | {"large": content}).items()]
    (folder / MANIFEST).write_bytes(manifest_text(1, 1, facts))
    assert what_is_wrong(folder) == ""
    for at in (0, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 4):
        with (folder / "large").open("r+b") as stream:
            stream.seek(at)
            stream.write(b"\x01")
            stream.flush()
            assert what_is_wrong(folder) == "has other bytes in large than were written"
            stream.seek(at)
            stream.write(b"\0")
    assert what_is_wrong(folder) == ""


def test_a_share_of_the_files_can_be_checked(tmp_path: Path) -> None:
    folder = add(tmp_path)
    (folder / "plan.json").write_bytes(b"[]")
    files = read_manifest(folder).files

    check(folder, [file for file in files if file.name != "plan.json"])
    with pytest.raises(BrokenError, match=r"plan\.json"):
        check(folder, files)


def whole(**changes: object) -> dict[str, object]:
    """Spell a manifest that is right but for the changes."""
    files = {name: [len(text), fact(name, text).sha256] for name, text in CONTENT.items()}
    return {"version": 1, "step": 1200, "number": 1, "files": files} | changes


NOT_COUNTS = [-1, 1.0, 1e400, float("nan"), 1 << 61, 10**400, True, "1", None, [1], {}]


@pytest.mark.parametrize("wrong", NOT_COUNTS)
@pytest.mark.parametrize("key", ["version", "step", "number"])
def test_a_number_that_is_none_is_broken_not_a_crash(
    tmp_path: Path, key: str, wrong: object
) -> None:
    folder = add(tmp_path)
    sign(folder, whole(**{key: wrong}))
    assert what_is_wrong(folder) == "has a manifest that cannot be understood"


@pytest.mark.parametrize("wrong", NOT_COUNTS)
def test_a_size_that_is_none_is_broken_not_a_crash(tmp_path: Path, wrong: object) -> None:
    folder = add(tmp_path)
    sign(folder, whole(files={name: [wrong, "0" * 64] for name in CONTENT}))
    assert what_is_wrong(folder) == "has a manifest that cannot be understood"


@pytest.mark.parametrize("missing", ["plan.json", "rank-0.json"])
def test_a_manifest_that_does_not_list_everything_is_not_complete(
    tmp_path: Path, missing: str
) -> None:
    folder = add(tmp_path)
    facts = {name: [len(text), fact(name, text).sha256] for name, text in CONTENT.items()}
    sign(folder, whole(files={name: each for name, each in facts.items() if name != missing}))
    assert what_is_wrong(folder) == f"has a manifest that does not list {missing}"
    sign(folder, whole(files={}))
    assert what_is_wrong(folder) == "has a manifest that does not list plan.json"


def written(folder: Path, name: str, content: object) -> Path:
    """Replace a file by other JSON, with the right hash in the manifest."""
    (folder / name).write_text(json.dumps(content))
    texts = {each: (folder / each).read_bytes() for each in CONTENT}
    (folder / MANIFEST).write_bytes(manifest_text(1200, 7, [fact(*item) for item in texts.items()]))
    return folder


CHUNK = [[0], [4], "rank-0.safetensors", 0, 16]
PLANS: list[object] = [
    [],
    None,
    7,
    {"a": None},
    {"a": {}},
    {"a": {"dtype": "F32", "size": [4], "chunks": None}},
    {"a": {"dtype": "F32", "size": [4], "chunks": [[]]}},
    {"a": {"dtype": ["F32"], "size": [4], "chunks": [CHUNK]}},
    {"a": {"dtype": "Q64", "size": [4], "chunks": [CHUNK]}},
    *({"a": {"dtype": "F32", "size": [wrong], "chunks": [CHUNK]}} for wrong in NOT_COUNTS),
    *(
        {"a": {"dtype": "F32", "size": [4], "chunks": [[*CHUNK[:at], wrong, *CHUNK[at + 1 :]]]}}
        for at in range(5)
        for wrong in (-1, 1e400, None, [1e400], ["x"], "rank-1.safetensors", "../rank-0.json", 6000)
    ),
    {f"a{number}": {"dtype": "U8", "size": [5000], "chunks": [[[0], [5000], *CHUNK[2:4], 5000]]}
     for number in range(3)},
]  # fmt: skip


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_that_makes_no_sense_is_broken_not_a_crash(tmp_path: Path, plan: object) -> None:
    folder = written(add(tmp_path), "plan.json", plan)
    assert re.match("has a plan|has '|has more", what_is_wrong(folder))


def test_a_plan_that_is_right_is_read(tmp_path: Path) -> None:
    plan = {"a": {"dtype": "F32", "size": [4], "chunks": [CHUNK]}}
    assert what_is_wrong(written(add(tmp_path), "plan.json", plan)) == ""


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {"!": "tuple", "items": []},
        {"model": {"!": 7}},
        {"model": {"!": "none such"}},
        {"model": {"!": "tensor"}},
        {"model": {"!": "tensor", "name": 7}},
        {"model": {"!": "tensor", "name": "not in the plan"}},
        {"model": {"!": "tuple"}},
        {"model": {"!": "tuple", "items": 7}},
        {"model": {"!": "set", "items": [[]]}},
        {"model": {"!": "Size", "items": ["x"]}},
        {"model": {"!": "dict", "items": [1]}},
        {"model": {"!": "dict", "items": [[{}, 1]]}},
        {"model": {"!": "bytes", "base64": "A"}},
        {"model": {"!": "bytes", "base64": 7}},
        {"model": {"!": "scalar", "base64": "AAAA", "dtype": "<f8"}},
        {"model": {"!": "scalar", "base64": "AAAA", "dtype": "O"}},
        {"model": {"!": "dtype", "name": "hub.load"}},
        {"model": {"!": "device", "name": None}},
        {"model": json.loads("[" * 500 + "]" * 500)},
    ],
)
def test_a_state_that_cannot_be_built_is_broken_not_a_crash(tmp_path: Path, state: object) -> None:
    folder = written(add(tmp_path), "rank-0.json", {"world": 1, "state": state})
    assert re.match("has a rank-0.json that cannot|has no 'not in", what_is_wrong(folder))


@pytest.mark.parametrize("world", [0, *NOT_COUNTS])
def test_a_number_of_ranks_that_is_none_is_broken(tmp_path: Path, world: object) -> None:
    folder = written(add(tmp_path), "rank-0.json", {"world": world, "state": {}})
    assert what_is_wrong(folder) == "has a rank-0.json that cannot be understood"
