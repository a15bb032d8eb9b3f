"""Nothing that a terminal would act on reaches it from logs, names, journals or recordings."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import Command, Said, count, number
from journals import NAME, write_journal

from rocsteady.printable import inert, printable, printable_json

FEW, MANY = 12, 500  # mutated inputs to each command; all of them with `nox -s hostile`
HOSTILE = (
    "\x1b[2J", "\x1b]0;title\x07", "\x1b[31m", "\x1b[1A", "\x1bP+q\x1b\\", "\x9b2J", "\x9d0;x\x9c",
    "\r", "\b", "\x00", "\x07", "\x7f", "\x85", "\u202e", "\u2066", "\u200f", "\u200b", "\ufeff",
    "\u2028", "\u061c", "\U000e0041", "\x0b", "\x0c", "\x0e",
)  # fmt: skip
LOG = """\
Traceback (most recent call last):
  File "/work/train.py", line 31, in <module>
    loss.backward()
torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has 20 GiB in all.
"""
RECORDINGS = Path(__file__).parents[1] / "machines"


def mutated(text: str, seed: int, *, most: int = 8) -> str:
    draw = random.Random(seed)  # noqa: S311 - the same each time
    for _ in range(draw.randint(1, most)):
        at = draw.randint(0, len(text))
        text = text[:at] + draw.choice(HOSTILE) + text[at:]
    return text


def raw(said: Said) -> list[str]:
    """Return the characters of what was printed that a terminal would act on or hide."""
    both = said.out + said.err
    found = sorted({mark for mark in both if not mark.isprintable() and mark not in "\n\t"})
    count("control and bidirectional characters", "screens printed from mutated inputs")
    count("control and bidirectional characters", "raw characters", len(found))
    return found


def test_everything_but_lines_and_tabs_is_written_out() -> None:
    assert printable("a\tb\nc") == "a\tb\nc"
    assert printable("\x1b[2J\u202e\r") == "\\x1b[2J\\u202e\\r"
    assert all(printable(each).isprintable() for each in HOSTILE)
    assert printable("\udc80") == "\\udc80"


def test_json_keeps_its_meaning() -> None:
    text = json.dumps("".join(HOSTILE), ensure_ascii=False)

    assert json.loads(printable_json(text)) == "".join(HOSTILE)
    assert printable_json(text).isprintable()


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_explain(command: Command, words: tuple[str, ...]) -> None:
    for seed in range(number(FEW, MANY)):
        assert raw(command("explain", "-", *words, given=mutated(LOG, seed))) == []
        assert raw(command("explain", mutated("HIP out of memory. Tried", seed), *words)) == []


def test_what_is_told_of_runs(command: Command, tmp_path: Path) -> None:
    """Each input stands in every field of a journal that others can fill."""
    for seed in range(number(3, MANY)):
        project = tmp_path / f"p{seed}"
        project.mkdir()
        text = mutated("step 3 of 7 at train.py:31 in main", seed, most=3)
        write_journal(project, [text.replace("\x00", "\x01")])
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(project)
            for words in (("report", NAME), ("status",)):
                assert raw(command(*words)) == []
                assert raw(command(*words, "--json")) == []
            assert raw(command("report", NAME)) == []
            for file in ("page.html", "page.txt"):
                assert command("report", NAME, "-o", file).code == 0
                page = Path(file).read_text(encoding="utf-8")
                assert not {mark for mark in page if not mark.isprintable()} - {"\n", "\t"}
            assert raw(command("stop", NAME)) == []
            log = Path(".rocsteady", "runs", NAME, "attempt-1.log")
            log.write_text(mutated(LOG, seed), encoding="utf-8")
            assert raw(command("logs", NAME)) == []
            assert raw(command("logs", NAME, "-n", "2")) == []
            assert raw(command("run", "--resume", NAME)) == []


@pytest.mark.parametrize("words", [("doctor",), ("machine")])
def test_recordings(command: Command, words: tuple[str, ...], tmp_path: Path) -> None:
    kept = json.loads((RECORDINGS / "rx7900xtx.json").read_text())
    for seed in range(number(3, MANY)):
        path = tmp_path / "machine.json"
        path.write_text(json.dumps(_spoilt(kept, seed)))
        assert raw(command(*words, "--root", str(path))) == []
        assert raw(command(*words, "--root", str(path), "--json")) == []


def _spoilt(value: object, seed: int) -> object:
    """Put hostile characters into the texts of a recording."""
    if isinstance(value, dict):
        return {key: _spoilt(item, seed + index) for index, (key, item) in enumerate(value.items())}
    if isinstance(value, list):
        return [_spoilt(item, seed + index) for index, item in enumerate(value)]
    if isinstance(value, str) and seed % 3 == 0:
        return mutated(value, seed, most=2)
    return value


WORDS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "a command": lambda text: (text,),
    "an option": lambda text: ("doctor", f"--{text}"),
    "a rule": lambda text: ("explain", text),
    "a recording": lambda text: ("doctor", "--root", text),
    "a run to report": lambda text: ("report", text),
    "a run to stop": lambda text: ("stop", text),
    "a run to resume": lambda text: ("run", "--resume", text),
    "a name": lambda text: ("run", "--name", text, "--", "true"),
    "a program": lambda text: ("run", "--", f"/nothing/{text}"),
    "a remedy": lambda text: ("explain", text),
    "a probe": lambda text: ("probe", "--only", text),
    "a folder of checkpoints": lambda text: ("checkpoint", text),
    "a fault": lambda text: ("drill", "--faults", text, "--", "true"),
    "a duration": lambda text: ("run", "--hang-after", text, "--", "true"),
}


@pytest.mark.parametrize("what", WORDS)
def test_words_that_are_not_understood(command: Command, what: str) -> None:
    for seed in range(number(FEW, MANY)):
        text = mutated("calm-otter", seed).replace("\x00", "\x01")
        said = command(*WORDS[what](text))
        assert raw(said) == [], (said, text)


def test_job_files(command: Command) -> None:
    file = Path("rocsteady.toml")
    for seed in range(number(FEW, MANY)):
        text = mutated('command = ["python", "train.py"]\ndeadline = "soon"\n', seed)
        file.write_text(text, encoding="utf-8")
        for words in (("run",), ("plan",), ("drill", "--faults", "hang@3")):
            assert raw(command(*words)) == []


def test_checkpoints(command: Command) -> None:
    for seed in range(number(FEW, MANY)):
        name = mutated("step-5", seed, most=2).replace("/", "").replace("\x00", "\x01")
        folder = Path("checkpoints", name)
        folder.mkdir(parents=True, exist_ok=True)
        text = mutated('{"version": 1, "step": 5, "files": {"a": 3}, "run": "x"}', seed)
        (folder / "manifest.json").write_text(text, encoding="utf-8")
        assert raw(command("checkpoint", "checkpoints")) == []
        assert raw(command("checkpoint", "checkpoints", "--json")) == []


def test_colours_of_our_own_reach_a_terminal_and_no_others(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocsteady.screens.screen.layout", lambda _stream: (80, True))
    text = "RuntimeError: HIP out of memory. \x1b[2J\x1b[31mTried\u202e"

    said = command("explain", text)

    assert "\x1b[1m" in said.out
    assert "\x1b[2J" not in said.out
    assert "\x1b[31mTried" not in said.out
    assert "\u202e" not in said.out
    assert sys.stdout is not None


def test_only_the_word_that_could_act_is_code() -> None:
    assert inert("Hung at train.py:14 in <module>. See #7") == (
        "Hung at train.py:14 in `<module>.` See `#7`"
    )
    assert inert("[x y](http://a) `b` *c*") == "`[x` `y](http://a)` `` `b` `` `*c*`"
