"""Write the man pages of the commands from their help: ``python tools/man_pages.py``.

They are part of the wheel of the command, so that ``man rocsteady-run`` works where it is
installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from rocsteady.cli.main import COMMANDS, GROUPS, rocsteady

FOLDER = Path(__file__).parents[1] / "packages" / "rocsteady" / "man"
SECTION = 1


def pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    top = click.Context(rocsteady, info_name="rocsteady", **rocsteady.context_settings)
    found = {f"rocsteady.{SECTION}": _page(top, [*_groups()])}
    for name in COMMANDS:
        command = rocsteady.get_command(top, name)
        if command is not None:
            context = click.Context(command, info_name=name, parent=top)
            found[f"rocsteady-{name}.{SECTION}"] = _page(context, [])
    return found


def _page(context: click.Context, more: list[str]) -> str:
    command = context.command
    title = context.command_path.replace(" ", "-")
    first, _, rest = (command.help or "").partition("\n\n")
    lines = [f'.TH "{title.upper()}" "{SECTION}" "" "rocsteady" "User Commands"']
    lines += [".SH NAME", f"{_roff(title)} \\- {_roff(_line(first).rstrip('.'))}"]
    usage = " ".join(command.collect_usage_pieces(context))
    lines += [".SH SYNOPSIS", f".B {_roff(context.command_path)}", _roff(usage)]
    if rest:
        lines.append(".SH DESCRIPTION")
        for paragraph in rest.split("\n\n"):
            lines += [".PP", _roff(_line(paragraph))]
    options = [found for each in command.params if (found := each.get_help_record(context))]
    # Not from click, which keeps the option as it was when somebody first asked for it.
    names = ", ".join(sorted(context.help_option_names, key=len))
    options.append((names, "Show this message and exit."))
    lines.append(".SH OPTIONS")
    for names, words in options:
        lines += [".TP", f"\\fB{_roff(names)}\\fR", _roff(_line(words))]
    lines += more
    if command.epilog:
        text = [_roff(line) for line in command.epilog.removeprefix("\b\n").rstrip().splitlines()]
        lines += [".SH EXIT STATUS", ".nf", *text, ".fi"]
    lines += [".SH SEE ALSO", *_see_also(title)]
    return "\n".join(lines) + "\n"


def _groups() -> Iterator[str]:
    for title, commands in GROUPS.items():
        yield f".SH {title.upper()}"
        for name, words in commands.items():
            yield from (".TP", f"\\fBrocsteady {name}\\fR", _roff(words))


def _see_also(title: str) -> Iterator[str]:
    others = ("rocsteady", *(f"rocsteady-{each}" for each in COMMANDS))
    yield ", ".join(f"\\fB{_roff(name)}\\fR({SECTION})" for name in others if name != title)


def _line(text: str) -> str:
    return " ".join(text.split())


def _roff(text: str) -> str:
    """Write text so that roff takes none of it for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main() -> None:
    """Write the pages, and remove those of commands that are gone."""
    FOLDER.mkdir(exist_ok=True)
    found = pages()
    for path in FOLDER.glob(f"*.{SECTION}"):
        if path.name not in found:
            path.unlink()
    for name, text in found.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(found)} pages in {FOLDER}\n")


if __name__ == "__main__":
    main()
