"""A command under ``rocsteady run`` ends, prints and finds its world as without us."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from process_facts import ENDS, FACTS, WORDS
from side_by_side import ADDED, OURS, SideBySide

PYTHON = sys.executable


@pytest.fixture
def runs(tmp_path: Path) -> SideBySide:
    return SideBySide(tmp_path)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what one and the same script finds, bare and watched."""
    runs = SideBySide(tmp_path_factory.mktemp("facts"))
    script = Path(runs.script(FACTS)).name
    theirs = str(runs.folder / "theirs")
    return runs.told(PYTHON, script, *WORDS, PYTHONPATH=theirs, PYTHONHASHSEED="0", MINE="a=b\nc")


@pytest.mark.parametrize("how", ENDS)
def test_ends_as_without_us(runs: SideBySide, how: str) -> None:
    text, code = ENDS[how]

    assert runs.both(PYTHON, runs.script(text)).code == code


def test_every_fact_of_the_process_is_the_same(facts: tuple[dict[str, Any], ...]) -> None:
    bare, watched = ({**found, "environment": None} for found in facts)

    assert watched == bare
    assert bare["argv"][1:] == WORDS


def test_four_variables_are_added_and_no_other_is_changed(
    facts: tuple[dict[str, Any], ...],
) -> None:
    bare, watched = (found["environment"] for found in facts)

    assert watched.keys() - bare.keys() == ADDED - {"PYTHONPATH"}
    assert {name for name in bare if bare[name] != watched[name]} == {"PYTHONPATH"}
    assert watched["PYTHONPATH"].endswith(f"/site:{bare['PYTHONPATH']}")


def test_without_a_pythonpath_there_is_none_but_ours(runs: SideBySide) -> None:
    text = "import json, os; print(json.dumps(dict(os.environ)))"
    bare, watched = runs.told(PYTHON, "-c", text, PYTHONHASHSEED="0")

    assert watched.keys() - bare.keys() == ADDED
    assert bare.items() <= watched.items()
    assert watched["PYTHONPATH"].endswith("/site")


def test_limits_umask_and_ignored_signals_are_handed_on(runs: SideBySide) -> None:
    shell = (
        "umask 027; ulimit -n 300 -c 0 -s 4096; trap '' HUP INT USR1 TSTP; exec nice -n 3 \"$@\""
    )
    script = runs.script(FACTS)

    bare = runs.bare("bash", "-c", shell, "bash", PYTHON, script)
    watched = runs.bare("bash", "-c", shell, "bash", *runs.watching(), PYTHON, script)

    kept = ("umask", "limits", "ignored", "signals", "nice", "blocked")
    found = json.loads(bare.out), json.loads(watched.out)
    assert {key: found[1][key] for key in kept} == {key: found[0][key] for key in kept}
    assert (found[1]["umask"].strip(), found[1]["limits"]["RLIMIT_NOFILE"][0]) == ("0027", 300)


def test_a_file_that_was_handed_to_us_is_handed_on(runs: SideBySide) -> None:
    (runs.folder / "given").write_text("from them")
    shell = 'exec 9<given; exec "$@"'

    ended = runs.bare(
        "bash", "-c", shell, "bash", *runs.watching(), PYTHON, "-c", "print(open(9).read())"
    )

    assert (ended.code, ended.out) == (0, b"from them\n")


def test_stdin_comes_through_as_it_is(runs: SideBySide) -> None:
    sent = random.Random(3).randbytes(3_000_000)  # noqa: S311 - nothing is guarded by it
    text = "import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"

    ended = runs.both(PYTHON, "-c", text, stdin=sent)

    assert ended.out.decode().strip() == hashlib.sha256(sent).hexdigest()


def test_an_unread_stdin_is_left_to_the_next_reader(runs: SideBySide) -> None:
    shell = '"$@"; cat'
    command = (PYTHON, "-c", "import os; print(os.read(0, 5))")

    bare = runs.bare("sh", "-c", shell, "sh", *command, stdin=b"firstsecond")
    watched = runs.bare("sh", "-c", shell, "sh", *runs.watching(), *command, stdin=b"firstsecond")

    assert bare.out == watched.out == b"b'first'\nsecond"


def test_five_megabytes_of_random_bytes_on_both_streams(runs: SideBySide) -> None:
    ended = runs.both(
        PYTHON,
        "-c",
        """
import random, sys
for seed in range(40):
    sys.stdout.buffer.write(random.Random(seed).randbytes(131072))
    sys.stderr.buffer.write(bytes(range(256)).replace(b"\\n", b"") * 40)
sys.stderr.buffer.write(b"\\n")
""",
    )

    assert (len(ended.out), len(ended.err)) == (40 * 131072, 40 * 40 * 255 + 1)


def test_a_last_line_without_an_end_stays_so_and_ours_begins_anew(runs: SideBySide) -> None:
    text = "import sys; print('half', end=''); print('a line', file=sys.stderr)"
    assert runs.both(PYTHON, "-c", text) == (0, b"half", b"a line\n")

    ended = runs.bare(*runs.watching(), PYTHON, "-c", "import sys; sys.stderr.write('50%')")
    before, _, after = ended.err.rpartition(b"50%")
    assert OURS.sub(b"", before) == b""
    assert after.startswith(b"\nrocsteady: done ")


def test_a_reader_that_leaves_early_does_not_end_the_script(runs: SideBySide) -> None:
    """The one wanted difference: bare, it would end with a broken pipe. The log has everything."""
    command = (PYTHON, "-c", "for _ in range(99): print('y' * 9999, flush=True)")
    shell = '"$@" | head -c 10; echo " ${PIPESTATUS[0]}"'

    ended = runs.bare("bash", "-c", shell, "bash", *runs.watching(), *command)

    assert ended.out == b"yyyyyyyyyy 0\n"
    (log,) = runs.folder.glob(".rocsteady/runs/*/attempt-1.log")
    assert log.read_bytes().count(b"y") >= 99 * 9999
