"""Every command line that docs, help, knowledge and screens print can be typed as it stands."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocsteady.cli.main import COMMANDS

pytestmark = [pytest.mark.slow, pytest.mark.ci]
if os.name == "nt":
    pytest.skip("most commands need Linux", allow_module_level=True)

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "packages" / "rocsteady" / "src" / "rocsteady"
DATA = ROOT / "packages" / "rocsteady_knowledge" / "src"
PAGES = ("*.md", "docs/*.md", "docs/[!d]*/*.md", "packages/*/README.md", "examples/**/*.md")
IN_CODE = re.compile(r"`(?:\w+=\S+ )*rocsteady ([-a-z][^`]*)`")
IN_BLOCK = re.compile(r"(?m)^\s*(?:\$ |\w+=\S+ )*rocsteady ([-a-z].*)$")
INDENTED = re.compile(r"(?m)^ {4}rocsteady ([-a-z].*)$")
IN_TEXT = re.compile(rf"(?<![\w./-])rocsteady ((?:--|(?:{'|'.join(COMMANDS)})\b)[^\n`]*)")
REST = re.compile(
    r"(?:[.,;:)]+(?= |$)|' |\"\)| \(|  | <| [|] |\" %|\{%).*"
)  # of the sentence around it
NO_COMMAND = (  # how sentences go on that begin with a command's name
    "machine --json prints",
    "init again",
    "init on {draft.day} from",
    "init once",
    "probe on {",
    "restarts it after each one",
    "run finds it",
    "run looks for",
    "run{instead}",
    "run{self._sandbox.instead}",
    "watch here",
)
# A page may name a command or an option in a sentence, without what has to follow it.
NAMED_ONLY = {
    "checkpoint",
    "fleet",
    "fleet --json",
    "machine --record",
    "drill",
    "explain",
    "plan --export",
}
SAMPLES = (  # of what stands for something else: the first pattern that fits
    (r"\[RUN\]|RUN|NAME-STAGE|NAME|\{[^}]*name\}|\{resumed\}", "calm-otter"),
    (r"\{subcommand\}", "env"),
    (r"\{self\._command\}|(?<=plan)\{typed\}", " -- python train.py"),
    (r"\{[a-z_.]*drill_step\}", "50"),
    (r"(?<=--root )\{shlex\.quote\(name\)\}", "my-machine.json"),
    (r"\[-- COMMAND\]", "-- python train.py"),
    (r"COMMAND|\{[^}]*(?:command|typed|asked)[^}]*\}", "python train.py"),
    (r"SCRIPT", "train.py"),
    (r"\[PID\]|PID|\{(?:found|each)\.pid\}", "1"),
    (r"(?<=plan --details )N\b|\{number\}", "1"),
    (r"TEXT \| FILE \| - \| ID", "TEXT"),
    (r"RULE|\bID\b|\{[^}]*rule[^}]*\}|\{worst_first\[0\]\}", "igpu-visible"),
    (r"\{(?:arch\.)?gfx\}", "gfx1100"),
    (r"\[?FAILURE\]?|\{kind\.id\}", "hang-in-loader"),
    (r"\{changes\[-1\]\.decision\.what\}|\{','\.join\(keep\)\}", "loader-inline"),
    (r"\{option\.id\}", "skypilot"),
    (r"\{probe\}", "copies"),
    (r"RECORDING|\[FILE\]|\bFILES?\b", "my-machine.json"),
    (r"\[FOLDER\]|FOLDER", "."),
    (r"\$\(hostname -s\)", "node1"),
    (r"PATH", "$VIRTUAL_ENV/bin/python"),
    (r"\[OPTIONS\]|\[NAME\]\.\.\.|\[COMMAND\]\.\.\.|\.\.\.", ""),
)
FAST = ("doctor", "explain", "status", "--version", "help")  # and they only read
DRIVER = """
import glob, json, os, sys
import click
from rocsteady.cli.main import main, rocsteady

def parse(command, name, words, parent=None):
    context = command.make_context(name, list(words), parent=parent)
    if isinstance(command, click.Group):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        if rest:
            name, found, rest = command.resolve_command(context, rest)
            parse(found, name, rest, context)

def run(words):
    child = os.fork()
    if not child:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0), os.dup2(null, 1), os.dup2(2, 2)
        sys.argv = ["rocsteady", *words]
        try:
            main()
        except SystemExit as ended:
            os._exit(ended.code or 0)
        os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

lines, fast = json.load(sys.stdin)
output = os.dup(1)
os.dup2(os.open(os.devnull, os.O_RDWR), 1)
refused, seen = {}, []
for line, words in lines.items():
    words = [os.path.expandvars(os.path.expanduser(word)) for word in words]
    words = [each for word in words for each in (glob.glob(word) if "*" in word else [word])]
    try:
        parse(rocsteady, "rocsteady", words)
    except click.exceptions.Exit:
        pass
    except click.ClickException as error:
        refused[line] = error.format_message()
    else:
        if words[0] in fast and words not in seen and run(words) in (2, 99):
            refused[line] = "exit code 2"
    seen.append(words)
os.write(output, json.dumps([os.getuid(), refused]).encode())
"""


def printed() -> Iterator[tuple[str, str]]:
    """Yield each command line that we print, without its first word, with its place."""
    for path in sorted({path for pattern in PAGES for path in ROOT.glob(pattern)}):
        text = path.read_text(encoding="utf-8").replace("\\\n", "")
        parts = re.split(r"(?m)^ *```.*$", text)
        for prose in parts[::2]:
            for found in (*IN_CODE.findall(prose), *INDENTED.findall(prose)):
                yield path.name, " ".join(found.split())
        for block in parts[1::2]:
            yield from ((path.name, found) for found in IN_BLOCK.findall(block))
            yield from ((path.name, REST.sub("", found)) for found in IN_TEXT.findall(block))
    for path in sorted(DATA.rglob("*.toml")):
        for text in _members(tomllib.loads(path.read_text(encoding="utf-8"))):
            if text.startswith("rocsteady "):
                yield path.name, text.removeprefix("rocsteady ")
    pages = [(path, path.read_text("utf-8")) for path in SOURCE.rglob("*.j2")]
    texts = [(path, re.sub(r"\{#.*?#\}", "", text)) for path, text in pages]
    helps = (ROOT / "packages" / "rocsteady" / "man").glob("*.1")
    texts += [(path, path.read_text("utf-8").replace("\\-", "-")) for path in helps]
    texts += [(path, text) for path in SOURCE.rglob("*.py") for text in _strings(path)]
    for path, text in texts:
        yield from ((path.name, REST.sub("", found)) for found in IN_TEXT.findall(text))


def _members(value: object) -> Iterator[str]:
    """Yield the texts in lists: a fix has a list of commands."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in values:
        if isinstance(each, str) and isinstance(value, list):
            yield each
        yield from _members(each)


def _strings(path: Path) -> Iterator[str]:
    """Yield the texts in a module, with the values of an f-string as they are written in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(each) for each in node.values}
            yield "".join(
                f"{{{ast.unparse(each.value)}}}"
                if isinstance(each, ast.FormattedValue)
                else str(ast.literal_eval(each))
                for each in node.values
            )
        elif isinstance(node, ast.Expr):  # a docstring
            parts.add(id(node.value))
        elif isinstance(node, ast.Constant) and id(node) not in parts:
            yield str(node.value)


def words_of(line: str) -> list[str]:
    for pattern, sample in SAMPLES:
        line = re.sub(pattern, sample, line)
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # the quote around the command in its sentence
        words = shlex.split(line.rstrip().rstrip("\"'"), comments=True)
    ends = (number for number, word in enumerate(words) if word in ("|", "||", "&&", ">"))
    return words[: next(ends, None)]


def ordinary_user() -> tuple[str, ...]:
    """Return what makes root a user who may only read what is root's; nothing if it cannot."""
    rights = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *rights)
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return ()
    allowed = subprocess.run([*user, "true"], check=False, capture_output=True).returncode == 0
    return user if allowed else ()  # a container may not give a right away


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with the files that the examples name."""
    (tmp_path / "tests").mkdir()
    shutil.copytree(ROOT / "tests" / "machines", tmp_path / "machines")
    shutil.copytree(ROOT / "tests" / "machines", tmp_path / "tests" / "machines")
    shutil.copytree(ROOT / "tests" / "machines", tmp_path / "nodes")
    for name in ("machine", "my-machine", "their-machine", "rx9070xt-windows"):
        shutil.copy(
            ROOT / "tests" / "machines" / "rx9070xt-windows.json", tmp_path / f"{name}.json"
        )
    for name in ("train.log", "train.sh", "compose.yaml", "train/.venv/bin/python"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_every_command_line_that_is_printed_is_accepted(home: Path, clean_python: str) -> None:
    places: dict[str, str] = {}
    for place, line in printed():
        named_only = line in NAMED_ONLY and place.endswith((".md", ".1"))
        if not named_only and not line.startswith(NO_COMMAND):
            places.setdefault(line.strip(), place)
    lines = {line: words_of(line) for line in places}
    assert len(lines) > 100
    user = ordinary_user()
    home.chmod(0o777)
    environment = str(Path(clean_python).parents[1])

    done = subprocess.run(
        [*user, clean_python, "-I", "-c", DRIVER],
        input=json.dumps([lines, FAST]),
        cwd=home,
        env={
            "HOME": str(home),
            "VIRTUAL_ENV": environment,
            "PATH": f"{environment}/bin:/usr/bin:/bin",
        },
        capture_output=True,
        check=True,
        text=True,
    )
    uid, refused = json.loads(done.stdout)

    assert uid != 0 or not user
    assert {f"{places[line]}: rocsteady {line}": why for line, why in refused.items()} == {}
