r"""Numbers that a job must reach: ``done_when.metrics``, from a JSON file or from the log.

::

    [done_when.metrics]
    "out/metadata.json:accuracy" = ">=0.65"          # a key of the newest file; a.b for nested ones
    'log:val accuracy ([0-9.]+)' = ">=0.65"          # the group of the last line that matches

What is read here was written by the script. A number that cannot be found is not reached, and the
sentence says why.
"""

from __future__ import annotations

import json
import math
import operator
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rocsteady_train.untrusted_file import open_regular, read_exactly, read_regular

from rocsteady.hangs.line_pattern import LinePattern
from rocsteady.system.logfile import LEFT_OUT, STAMP

LOG = "log:"
SPELLINGS = 'write it as ">=0.65", "<=5", ">0", "<1" or "==3"'
WANTED_LIMIT = 400  # characters
FILE_LIMIT = 4 * 1024 * 1024  # bytes of a JSON file
LOG_CHUNK = 1024 * 1024  # bytes
LINE_LIMIT = 64 * 1024  # bytes that are kept of a line which goes on in the chunk before
SEARCH_WITHIN = 120.0  # seconds for a log; one of 200 MB without a match took 43 s
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_NUMBER = r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?"
_WANTED = re.compile(rf"\s*(>=|<=|==|>|<)\s*({_NUMBER})\s*")
_PRINTED = re.compile(rf"{_NUMBER}|[-+]?[0-9]+\.|[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")
_ENDS = re.compile(rb"[\r\n]+")
_KINDS = {str: "a text", list: "a list", dict: "a table", bool: "true or false", type(None): "null"}


class NotFoundError(Exception):
    """There is no number, with a sentence that says why."""


def written_metrics(value: object) -> dict[str, str]:
    """Take the table as it is written; what is no text is refused with the other spellings."""
    if not isinstance(value, dict):
        raise ValueError(  # noqa: TRY004 - told with the others
            'expected a table such as { "metadata.json:accuracy" = ">=0.65" }'
        )
    return {source: str(wanted) for source, wanted in value.items()}


def metric_problems(metrics: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the spelling: the source, and a sentence."""
    for source, wanted in metrics.items():
        if problem := _wrong_with_source(source):
            yield source, problem
        match = _WANTED.fullmatch(wanted)
        if match is None or not math.isfinite(float(match.group(2))) or len(wanted) > WANTED_LIMIT:
            yield source, f"{wanted[:40]!r} is not a comparison; {SPELLINGS}"


def reached(wanted: str, number: float) -> bool:
    """Compare a number with what is wanted, such as ">=0.65"."""
    match = _WANTED.fullmatch(wanted)
    return match is not None and _COMPARE[match.group(1)](number, _exactly(match.group(2)))


def _exactly(text: str) -> float:
    """Read a number; a whole one of any size keeps all its digits."""
    return float(text) if set(text) & set(".eE") else int(text)


def metric_files(metrics: Mapping[str, str]) -> tuple[str, ...]:
    """Return the patterns of the files that hold the numbers."""
    return tuple(dict.fromkeys(_split(source)[0] for source in metrics if not _in_log(source)))


def moved_metrics(metrics: Mapping[str, str], moved: Callable[[str], str]) -> dict[str, str]:
    """Return the same metrics with their files elsewhere."""
    return {
        source if _in_log(source) else f"{moved(_split(source)[0])}:{_split(source)[1]}": wanted
        for source, wanted in metrics.items()
    }


def number_of(source: str, newest: Callable[[str], Path], logs: tuple[Path, ...]) -> float:
    """Find the number; ``newest`` gives the file for a pattern. Raises NotFoundError."""
    if _in_log(source):
        return _from_logs(LinePattern(source.removeprefix(LOG)), logs)
    pattern, key = _split(source)
    return _from_file(newest(pattern), key)


def _in_log(source: str) -> bool:
    return source.startswith(LOG)


def _split(source: str) -> tuple[str, str]:
    """Split at the last colon: the path of a file on Windows may have one as well."""
    file, _, key = source.rpartition(":")
    return file, key


def _wrong_with_source(source: str) -> str:
    if not _in_log(source):
        file, key = _split(source)
        whole = bool(file and key.strip()) and "\0" not in source
        return "" if whole else 'expected "FILE:KEY" or "log:PATTERN"'
    try:
        pattern = LinePattern(source.removeprefix(LOG))
    except ValueError as error:
        return str(error)
    if pattern.groups == 1:
        return ""
    return (
        f"has {pattern.groups} groups, and needs one for the number;"
        r" write it as 'log:accuracy ([0-9.]+)', and other groups as (?:...)"
    )


def _from_file(path: Path, key: str) -> float:
    try:
        value: object = json.loads(read_regular(path, FILE_LIMIT))
    except OSError as error:
        raise NotFoundError(f"cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise NotFoundError("the file is nested too deeply") from None
    except ValueError as error:
        too_long = "digits" in str(error)  # Python's limit for whole numbers
        why = "has a number that is too long" if too_long else "is not JSON"
        raise NotFoundError(f"the file {why}") from None
    for part in [key] if isinstance(value, dict) and key in value else key.split("."):
        value = _inside(value, part)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotFoundError(f"is {_KINDS[type(value)]}, not a number")
    return _finite(value)


def _inside(value: object, part: str) -> object:
    """Return what a table has under a key, or a list at a place: 0 is the first, -1 the last."""
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list) and re.fullmatch(r"-?[0-9]{1,9}", part, re.ASCII):
        place = int(part)
        if -len(value) <= place < len(value):
            return value[place]
    raise NotFoundError(f"the file has no {part!r}")


def _finite(value: float) -> float:
    if abs(value) < math.inf:  # math.isfinite refuses whole numbers of 400 digits
        return value
    raise NotFoundError("is infinite" if abs(value) == math.inf else "is NaN")


def _from_logs(pattern: LinePattern, logs: tuple[Path, ...]) -> float:
    if not logs:
        raise NotFoundError("there is no log")
    until = time.monotonic() + SEARCH_WITHIN
    try:
        for line in (line for log in reversed(logs) for line in _lines_from_the_end(log)):
            if line.startswith(b"rocsteady: ") and LEFT_OUT in line:
                raise NotFoundError("no match after the part of the log that log_limit removed")
            printed = STAMP.sub(b"", line, count=1).decode("utf-8", "replace")
            match = pattern.search(_ESCAPES.sub("", printed))
            if pattern.timeouts or time.monotonic() > until:
                raise NotFoundError("the pattern takes too long on this log")
            if match is not None:
                return _number(match.first or "")
    except OSError as error:
        raise NotFoundError(f"the log cannot be read: {error.strerror or error}") from None
    raise NotFoundError("no line of the log matches")


def _number(text: str) -> float:
    if not text:
        raise NotFoundError("the group of the pattern matched nothing")
    if _PRINTED.fullmatch(text.strip()) is None:
        raise NotFoundError(f"{text[:40]!r} in the log is not a number")
    return _finite(float(text))


def _lines_from_the_end(log: Path) -> Iterator[bytes]:
    """Yield the lines of a log of any size, the last one first, in little memory."""
    with open_regular(log, follow=False) as stream:
        at, rest = os.fstat(stream.fileno()).st_size, b""
        while at:
            start = max(0, at - LOG_CHUNK)
            stream.seek(start)
            rest, *lines = _ENDS.split(read_exactly(stream, at - start) + rest)
            yield from reversed(lines)
            rest, at = rest[:LINE_LIMIT], start
        yield rest
