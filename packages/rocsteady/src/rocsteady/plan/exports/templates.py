"""Renders the templates. What comes from the user goes through a filter that quotes it."""

from __future__ import annotations

import functools
import json
import re
import shlex
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2

COMMENT_WIDTH = 96  # columns of a comment
_BLOCK = re.compile(r"[!-~][\t -~]*(\n[\t -~]*)+")  # text that YAML can show as it stands


def render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2  # noqa: PLC0415 - takes long to import, and most commands write no file

    made = jinja2.Environment(  # noqa: S701 - none of the files is HTML
        loader=jinja2.PackageLoader("rocsteady.plan.exports"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    own = (no_option, unexpanded, copy_source, plain, prose, comment, paragraphs, fenced)
    made.filters.update({it.__name__: it for it in own})
    made.filters.update(shellquote=shlex.quote, shelljoin=shlex.join, yaml=yaml_text, lines=_lines)
    return made


def no_option(path: str) -> str:
    """Keep a path from being taken for an option."""
    return f"./{path}" if path.startswith("-") else path


def yaml_text(text: str, indent: int = 2) -> str:
    """Write a text as YAML: as a block if nothing in it can be misread, else in double quotes."""
    end = text[len(text.rstrip("\n")) :]
    if not _BLOCK.fullmatch(text) or len(end) > 1:
        import yaml  # noqa: PLC0415 - as above

        written = yaml.safe_dump(text, default_style='"', width=sys.maxsize, allow_unicode=False)
        return written.removesuffix("\n")
    block = textwrap.indent(text.removesuffix("\n"), " " * indent, lambda line: line != "\n")
    return f"{'|' if end else '|-'}\n{block}"


def unexpanded(text: str) -> str:
    """Keep Kubernetes from filling in $(NAME): there $$ stands for one $."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def copy_source(path: str) -> str:
    """Write a path for COPY so that nothing in it is filled in, nor taken for a pattern."""
    return json.dumps(re.sub(r"""([$'"\\])""", r"\\\1", path.replace("[", "[[]")))


def plain(text: str) -> str:
    """Keep a text on one line and in ASCII, whatever is in a name or a path."""
    shown = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)
    return shown.encode("ascii", "backslashreplace").decode()


def prose(text: str) -> str:
    """Keep names and paths on one line, and from being taken for Markdown."""
    return re.sub(r"([*_<>`\[\]])", r"\\\1", plain(text))


def comment(text: str) -> str:
    """Write each line as a comment of shell, YAML or Dockerfile; what is indented is not folded."""
    folded: list[str] = []
    for line in map(plain, _lines(text)):
        wrapped = textwrap.wrap(line, COMMENT_WIDTH, break_long_words=False, break_on_hyphens=False)
        folded += [line] if line.startswith(" ") else wrapped
    return "".join(f"# {line}\n" for line in folded)


def paragraphs(text: str) -> str:
    return "\n\n".join(map(prose, _lines(text))) + "\n"


def fenced(code: str) -> str:
    """Write shell code in Markdown, with a fence that does not occur in it."""
    longest = max(map(len, re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, 1 + longest)
    return f"{fence}bash\n{code.removesuffix(chr(10))}\n{fence}\n"


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]
