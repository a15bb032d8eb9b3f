"""Makes characters visible that a terminal would act on or hide: one function for all output.

Control characters move the cursor, set titles and clear the screen; bidirectional marks show text
in another order than it has; some letters are blank. Logs, recordings, names and journals may hold
any of them.
"""

from __future__ import annotations

import re

KEPT = "\n\t"
# Printable by Unicode's categories, and nothing is seen of them; from "Default_Ignorable".
BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)


def _is_seen(mark: str) -> bool:
    return (mark.isprintable() and not BLANK.match(mark)) or mark in KEPT


class _Visible(dict[int, str]):
    """What each character becomes; worked out once for each."""

    def __missing__(self, code: int) -> str:
        mark = chr(code)
        seen = mark if _is_seen(mark) else ascii(mark)[1:-1]
        self[code] = seen
        return seen


class _InJson(dict[int, str]):
    """The same for JSON, where an escape stands for the very character."""

    def __missing__(self, code: int) -> str:
        mark = chr(code)
        units = mark.encode("utf-16-be", "surrogatepass")
        pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
        seen = mark if _is_seen(mark) else "".join(f"\\u{p}" for p in pairs)
        self[code] = seen
        return seen


_VISIBLE, _IN_JSON = _Visible(), _InJson()
ACTIVE = re.compile(r"[<`*\[]|https?://|(?<!\w)@\w|#\d")  # in Markdown, or on GitHub
_COLOURED = re.compile(r"(?<=[\u2000-\u27ff\u2801-\u2bff\U0001f000-\U0001faff])\\ufe0f")  # an emoji
_NAME = re.compile(r"[-\w]+")


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def printable(text: str) -> str:
    r"""Return ``text`` with ``\x1b`` and the like written out. Lines and tabs stay."""
    return text if _is_plain(text) else _COLOURED.sub("\ufe0f", text.translate(_VISIBLE))


def printable_json(text: str) -> str:
    """Return a JSON text of the same meaning without raw control and bidirectional characters."""
    return text if _is_plain(text) else text.translate(_IN_JSON)


def cell(text: str) -> str:
    """Show text that others wrote in a table."""
    return inert(text).replace("|", "\\|")


def inert(text: str) -> str:
    """Show text that others wrote: no image is loaded, nobody is mentioned, no issue is closed."""
    return " ".join(
        code(word) if ACTIVE.search(word) else _NAME.sub(_name, word) for word in text.split()
    )


def _name(found: re.Match[str]) -> str:
    """Show a name with underscores, which some take for emphasis, as it is."""
    return code(found[0]) if found[0].count("_") > 1 else found[0]


def code(text: str) -> str:
    """Show text as it is, whatever marks are in it."""
    line = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if "`" in line else ""
    return f"{fence}{space}{line}{space}{fence}"
