"""Where output goes: how wide it may be, whether it may have colour, and a reader who left."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from typing import Any, TextIO, TypeVar

import click
import msgspec

from rocsteady.printable import printable, printable_json
from rocsteady.screens.text_page import takes_colour

_Value = TypeVar("_Value")

_COLOUR = re.compile(r"(\x1b\[[0-9;]{1,8}m)")
PLAIN_WIDTH = 80  # of output that is not on a terminal


def layout(stream: TextIO, environment: Mapping[str, str] = os.environ) -> tuple[int, bool]:
    """Return the width to lay out for, and whether colour is welcome."""
    if not stream.isatty():
        return PLAIN_WIDTH, False
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns, takes_colour(stream, environment)


def silence_stdout() -> None:
    """Keep Python from trying once more, at exit, to write what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(text: str) -> None:
    """Write to stdout. A pipe that was closed by its reader costs nothing: the answer stands.

    What a terminal would act on is written out; colours pass if the terminal takes them.
    """
    _write(_coloured(text) if layout(sys.stdout)[1] else printable(text))


def without_secrets(value: _Value) -> _Value:
    """Return a value without passwords, tokens and keys, to be laid out as text."""
    from rocsteady.store.redaction import Secrets  # noqa: PLC0415 - not needed by every command

    return msgspec.convert(Secrets().value(msgspec.to_builtins(value)), type(value))


def show_json(value: object, *, indent: int = 2) -> None:
    _write(json_text(value, indent=indent))


def json_text(value: object, *, indent: int = 2) -> str:
    from rocsteady.store.redaction import Secrets  # noqa: PLC0415 - not needed by every command

    told = Secrets().value(msgspec.to_builtins(value))
    text = msgspec.json.encode(_as_unicode(told))
    laid_out = msgspec.json.format(text, indent=indent) if indent else text
    return printable_json(laid_out.decode()) + "\n"


def _as_unicode(value: Any) -> Any:  # noqa: ANN401 - what JSON has
    """Write bytes of arguments and paths that are no UTF-8 as JSON can have them."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_as_unicode(name): _as_unicode(each) for name, each in value.items()}
    return [_as_unicode(each) for each in value] if isinstance(value, (list, tuple)) else value


def tell(text: str) -> None:
    click.echo(printable(text), err=True)


def _coloured(text: str) -> str:
    """Make everything visible but the colours, which a page adds around what is visible already."""
    pieces = _COLOUR.split(text)
    return "".join(piece if number % 2 else printable(piece) for number, piece in enumerate(pieces))


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    except UnicodeEncodeError:
        sys.stdout.write(text.encode("ascii", "backslashreplace").decode("ascii"))
