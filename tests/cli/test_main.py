"""The edge: wrong usage is 2, our own errors are one line, a bug is a report that can be pasted."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from rocsteady import __version__
from rocsteady.cli.main import COMMANDS, NO_BREAK, rocsteady
from rocsteady.run.options import RunOptions

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady

SURFACE = {
    "doctor": {
        "--json", "--python", "--root", "--knowledge", "--strict", "-v", "--verbose",
    },
    "machine": {"--json", "--python", "--record", "--root"},
    "env": {"--json", "--python", "--root", "file"},
    "wheels": {"--all", "--gpu", "--json", "--os", "--python", "--root"},
    "probe": {
        "--level",
        "--python",
        "--json",
        "--yes",
        "--again",
        "--details",
        "names",
        "--try",
        "--numbers",
        "--within",
        "--hang-after",
        "--report",
    },
    "init": {"--yes", "--force", "--seconds", "--json", "command"},
    "run": {
        "--name",
        "--max-attempts",
        "--give-up-after",
        "--observe",
        "--hang-after",
        "--no-workarounds",
        "--allow",
        "--deny",
        "--with",
        "--again",
        "--plain",
        "--detach",
        "--plan",
        "--resume",
        "--resume-trainer",
        "--notify",
        "--find-cause",
        "--yes",
        "command",
        "--also",
        "--anyway",
    },
    "plan": {
        "--again",
        "--details",
        "--export",
        "--force",
        "--json",
        "--no-trials",
        "--option",
        "--report",
        "--root",
        "--trial",
        "--within",
        "--yes",
        "command",
    },
    "drill": {"--faults", "--json", "--scratch", "--yes", "command"},
    "fleet": {"--json", "files"},
    "explain": {"--json", "--python", "--root", "text"},
    "status": {"--json"},
    "notify": {"--test", "--yes"},
    "watch": {"name", "--plain", "--json", "--interval", "--pid"},
    "logs": {"-f", "--follow", "-n", "--lines", "name"},
    "stop": {"name"},
    "report": {
        "--bundle",
        "--force",
        "--json",
        "--open",
        "--output",
        "-o",
        "name",
    },
    "checkpoint": {"--json", "folder"},
}  # fmt: skip


def test_the_public_surface_is_this_list() -> None:
    found = {}
    for name, subcommand in commands_of(rocsteady):
        shown = [each for each in subcommand.params if not getattr(each, "hidden", False)]
        options = {option for parameter in shown for option in parameter.opts}
        found[name] = options
    assert found == SURFACE


def commands_of(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yield every command; of a group those that it has."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", found) for inner, found in commands_of(command))


def test_help_lists_every_command(cli: Rocsteady) -> None:
    shown = cli("--help")

    assert shown.code == 0
    assert all(name in shown.out for name in COMMANDS)
    assert max(map(len, shown.out.splitlines())) <= 80


def test_the_reference_names_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text()

    for name, options in SURFACE.items():
        assert f"rocsteady {name}" in page
        named = [option for option in options if option.startswith("--")]
        assert all(f"`{option}" in page for option in named), name


def test_version(cli: Rocsteady) -> None:
    assert cli("--version").out == f"rocsteady {__version__}\n"


def test_a_process_that_is_not_there_could_not_be_inspected(cli: Rocsteady) -> None:
    assert cli("watch", "a-run", "--pid", "1").code == 2
    assert cli("watch", "--pid", str(2**22 + 1)).code == 3


def test_an_unknown_command_is_wrong_usage(cli: Rocsteady) -> None:
    ended = cli("docter")

    assert ended.code == 2
    assert "docter" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("--also", "precision-bf16", "--deny", "precision-bf16"),
        ("--allow", "loader-inline", "--deny", "loader-inline"),
        ("--with", "loader-inline", "--deny", "loader-inline"),
        ("--no-workarounds", "--also", "precision-bf16"),
        ("--no-workarounds", "--allow", "loader-inline"),
    ],
)
def test_what_is_both_wanted_and_forbidden_is_refused(
    cli: Rocsteady, tmp_path: Path, words: tuple[str, ...]
) -> None:
    made = tmp_path / "made"

    ended = cli("run", *words, "--", "touch", str(made))

    assert ended.code == 2
    assert not made.exists()


def test_a_bug_ends_in_a_report_and_code_3(tmp_path: Path) -> None:
    broken = "import rocsteady.cli.doctor as d; d.doctors_knowledge = lambda: 1 / 0; "
    started = (
        broken
        + "import sys; sys.argv = ['x', 'doctor']; from rocsteady.cli.main import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", started], capture_output=True, check=False, text=True, cwd=tmp_path
    )

    assert ended.returncode == 3
    assert "internal error" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr
    assert __version__ in ended.stderr


def test_interrupted_is_130(tmp_path: Path) -> None:
    stopped = (
        "import rocsteady.cli.doctor as d\n"
        "def stop(): raise KeyboardInterrupt\n"
        "d.doctors_knowledge = stop\n"
        "import sys; sys.argv = ['x', 'doctor']\n"
        "from rocsteady.cli.main import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", stopped], capture_output=True, check=False, text=True, cwd=tmp_path
    )

    assert (ended.returncode, ended.stdout) == (130, "")
    assert "Traceback" not in ended.stderr


def test_every_option_of_run_is_a_field_of_its_options() -> None:
    (run,) = (command for name, command in commands_of(rocsteady) if name == "run")

    assert {parameter.name for parameter in run.params} <= {*RunOptions.__struct_fields__}


def test_a_mistyped_command_never_suggests_one_that_stops_a_run(cli: Rocsteady) -> None:
    for typed in ("sto", "stopp", "stp", "top", "restart"):
        ended = cli(typed)

        assert ended.code == 2
        assert "'stop'" not in ended.err


def test_without_a_command_the_help_is_shown_as_it_is(cli: Rocsteady) -> None:
    ended = cli()

    assert ended.err.splitlines() == cli("--help").out.splitlines()


def test_help_breaks_no_id_at_its_hyphens() -> None:
    settings = {**rocsteady.context_settings, "terminal_width": 80}
    top = click.Context(rocsteady, info_name="rocsteady", **settings)
    for name in COMMANDS:
        command = rocsteady.get_command(top, name)
        assert command is not None
        text = click.Context(command, info_name=name, parent=top).get_help()
        assert not [line for line in text.splitlines() if re.search(r"\w-$", line)]
        assert NO_BREAK not in text


def test_a_number_that_is_none_is_said_in_plain_words(cli: Rocsteady) -> None:
    wrong = cli("logs", "-n", "x")

    assert wrong.code == 2
    assert "range" not in wrong.err


@pytest.mark.parametrize("error", ["MemoryError()", 'RuntimeError("can\'t start new thread")'])
def test_what_is_exhausted_is_no_bug(cli: Rocsteady, error: str) -> None:
    program = (
        "from rocsteady.cli import main\n"
        f"def fail(**_): raise {error}\n"
        "main.rocsteady.main = fail\n"
        "main.main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, check=False, text=True, env=cli.environment,
    )  # fmt: skip

    assert (ended.returncode, "ulimit -u" in ended.stderr, "bug" in ended.stderr) == (
        3,
        True,
        False,
    )
