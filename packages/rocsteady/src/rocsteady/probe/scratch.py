"""Where a trial or a drill runs the script: it sees the user's folder, and cannot change it.

In this order, as the kernel allows (``system/overlay.py``):

1. an overlay: what the script writes goes to another folder, and nothing is copied;
2. a copy of the folder, mounted in its place;
3. an overlay in which existing folders cannot be renamed, if a copy would be too large;
4. a copy somewhere else, where nothing can be mounted.

Only in the last case can a path into the user's folder get past the sandbox. Paths in the arguments
and variables are changed to lead into the copy; a script or configuration file that contains one is
refused. A path that the script puts together at run time is not found; the folder is compared
before and after, and changes are reported.

Not covered by any of them: paths outside the folder, unless a link in the folder leads there. Those
in the command are found by ``outside``.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from pathlib import Path

import msgspec
from rocsteady_train.untrusted_file import read_regular

from rocsteady.errors import RequestError
from rocsteady.model import Value
from rocsteady.probe.folders import FolderTree, copy_project, is_left_out, moved
from rocsteady.run.job import FILE as JOB_FILE
from rocsteady.system.bounded_call import ask
from rocsteady.system.real_path import real_path

TRIED_WITHIN = timedelta(seconds=10)
TRIAL = ".rocsteady-trial"
COPIED_AT_ONCE = 256 << 20  # bytes that are rather copied than done without renaming
CODE = {".py", ".sh", ".yaml", ".yml", ".toml", ".ini", ".cfg"}  # read, not written
SEARCHED = CODE | {".json"}  # for absolute paths
MAX_SEARCHED = 1 << 20  # bytes of a file; larger ones hold data
_OPTION = re.compile(r"^(?:-[A-Za-z]+(?=[/~.])|[^/~=]*=)")  # before its value: --out=, -o
# What may be a path in a word, and an address, which is none.
_PART = r"""(?x)(?<![^\s=:,;@|&<>"'`(\[{])(?:[A-Za-z][\w+.-]*://[^/\s=:,;@|&<>"'`()\[\]{}]+
|(?:-[A-Za-z]+(?=[/~.]))?(?P<path>(?:PROJECT(?=/))?[^\s=:,;@|&<>"'`()\[\]{}]+))"""
OF_THE_KERNEL = tuple(Path(f"/{name}") for name in ("dev", "proc", "sys"))


class Method(Enum):
    """How the user's folder is kept as it is."""

    OVERLAY = "overlay"
    OVERLAY_NO_RENAME = "overlay in which existing folders cannot be renamed"
    BIND = "copy, mounted in place of the folder"
    COPY = "copy"


class Scratch(Value, frozen=True, kw_only=True):
    """Where a script runs instead of the user's folder."""

    project: Path
    folder: Path  # where what the script writes is found
    before: tuple[str, ...] = ()  # words that come before the command
    method: Method = Method.COPY
    shared: tuple[str, ...] = ()  # environments of the project that a copy has links to
    read_only: tuple[str, ...] = ()  # links to files outside

    @property
    def is_copy(self) -> bool:
        """Whether the script runs elsewhere, and sees the user's folder at its own place."""
        return self.method is Method.COPY

    def command(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return a command as it must be started here."""
        if self.is_copy:
            words = [self._into_copy(self.inside(word)) for word in words]
        return (*self.before, *words)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        if not self.is_copy:
            return dict(environment)
        changed = {name: self._into_copy(value) for name, value in environment.items()}
        changed["PYTHONDONTWRITEBYTECODE"] = "1"  # beside modules that are not in the copy
        return changed

    def inside(self, pattern: str) -> str:
        """Return where what a path or pattern names is written."""
        return moved(pattern, self.project, self.folder)

    def _into_copy(self, text: str) -> str:
        """Change the paths in a text that begin with the folder's."""
        for place in {str(self.project), real_path(self.project)} - {"/"}:
            text = re.sub(rf"{re.escape(place)}(?![\w.-])", lambda _: str(self.folder), text)
        return text


class AbsolutePathError(RequestError):
    """A file of the project contains a path that a copy would not protect."""


def make_scratch(
    project: Path,
    root: Path,
    tree: FolderTree,
    *,
    environment: Mapping[str, str],
    without: Iterable[str],
) -> Scratch:
    """Make one below ``root``. A copy comes ``without`` some paths of the project."""
    written = root / "written"
    layers = _may_overlay(tree)
    for method in (Method.OVERLAY, Method.BIND, Method.OVERLAY_NO_RENAME):
        if method is Method.BIND:
            size = sum(entry.size for _, entry in tree.files()) if tree.whole else math.inf
            small = not layers or size <= COPIED_AT_ONCE
            bound = _bound(project, root, tree, environment, without) if small else None
            if bound is not None and _works(bound, environment):
                return bound
        elif layers:
            before = _order(project, root, tree, redirect=method is Method.OVERLAY)
            closed = tuple(
                link for link, target in _leading_out(project, tree) if not target.is_dir()
            )
            scratch = Scratch(
                project=project, folder=written, before=before, method=method, read_only=closed
            )
            if _works(scratch, environment):
                return scratch
    copy = root / "copy" / (project.name or "root")
    if copy.exists():
        shutil.rmtree(copy)
    _refuse_absolute_paths(project, tree, environment.get("HOME", ""))
    copy_project(project, copy, tree, frozenset(without))
    return Scratch(project=project, folder=copy, shared=tree.environments)


def _refuse_absolute_paths(project: Path, tree: FolderTree, home: str) -> None:
    """Find the paths into the folder that its scripts and configuration files contain."""
    places = {str(project), real_path(project)} - {"/"}
    below_home = [place[len(home) :] for place in places if home and place.startswith(f"{home}/")]
    places |= {f"{spelt}{rest}" for rest in below_home for spelt in ("~", "$HOME", "${HOME}")}
    spellings = "|".join(re.escape(place).replace("/", r"\\?/+") for place in places)
    pattern = re.compile(rf"(?<![\w.~-])(?:/proc/[\w/-]+/root)?(?:{spellings})(?![\w.-])")
    for path, _ in tree.files():
        parts = Path(path).parts
        own = path in (JOB_FILE, "pyvenv.cfg")  # the second one if the folder is an environment
        if Path(path).suffix not in SEARCHED or own or is_left_out(path):
            continue
        if places and not any(part.startswith(".") for part in parts):
            for number, line in enumerate(_lines(project / path), 1):
                if pattern.search(line):
                    raise AbsolutePathError(
                        f"{path}:{number}: contains the path of this folder. No mounts are"
                        " allowed here, so the script runs in a copy, which this path leaves"
                    )


def _lines(path: Path) -> list[str]:
    try:
        content = read_regular(path, MAX_SEARCHED + 1)
    except OSError:
        return []
    return [] if len(content) > MAX_SEARCHED else content.decode("utf-8", "replace").splitlines()


def _bound(
    project: Path,
    root: Path,
    tree: FolderTree,
    environment: Mapping[str, str],
    without: Iterable[str],
) -> Scratch | None:
    """Make a copy that is shown in place of the folder; None where nothing may be mounted."""
    if os.name == "nt":
        return None
    trial, place = root / "trial", root / "trial-at"
    trial.mkdir()
    place.mkdir()
    first = Scratch(project=place, folder=trial, before=_bind(place, trial, ()), method=Method.BIND)
    if not _works(first, environment):
        return None
    copy = root / "copy" / (project.name or "root")
    copy_project(project, copy, tree, frozenset(without), link=False)
    order = _bind(project, copy, tree.environments)
    return Scratch(project=project, folder=copy, before=order, method=Method.BIND)


def _bind(project: Path, copy: Path, environments: Iterable[str]) -> tuple[str, ...]:
    shown = [(str(project / path), str(copy / path)) for path in environments]
    return _started(project, copy=str(copy), shown=shown)


def outside(command: Sequence[str], project: Path) -> tuple[str, ...]:
    """Return the paths that a command names and the script may write to, outside its folder."""
    return tuple(dict.fromkeys(path for word in command[1:] for path in _away(word, project)))


def remove(root: Path) -> None:
    """Remove all that was made; of what the kernel made for itself nobody may look into some."""
    for folder in (*root.glob("*-work/work"), *root.glob("*/*-work/work")):  # of one, or of several
        folder.chmod(0o700)
    shutil.rmtree(root)


def _away(word: str, project: Path) -> Iterator[str]:
    """Find the value of a word, or else parts of it, that lead away from the folder."""
    value = os.path.expanduser(_OPTION.sub("", word))  # noqa: PTH111 - keeps a "/" at the end
    if _is_away(value, project):
        yield value
    elif not os.path.exists(project / value):  # noqa: PTH110 - no if it is too long for a name
        for part in re.finditer(_PART.replace("PROJECT", re.escape(str(project))), value):
            path = os.path.expanduser(part["path"] or "")  # noqa: PTH111 - as above
            there = path[:1] != "/" or os.path.exists(Path(*Path(path).parts[:2]))  # noqa: PTH110 - as above
            if there and _is_away(path, project):
                yield path


def _is_away(path: str, project: Path) -> bool:
    place = Path(real_path(project / path))
    leads = path.startswith("/") and path.strip("/")
    if not (leads or ".." in Path(path).parts) or place.is_relative_to(real_path(project)):
        return False
    return _may_write(place)


def _may_write(place: Path) -> bool:
    if place.suffix in CODE or any(place.is_relative_to(each) for each in OF_THE_KERNEL):
        return False
    there = next(path for path in (place, *place.parents) if os.path.exists(path))  # noqa: PTH110 - no if it may not be asked
    return os.access(there, os.W_OK)


def _may_overlay(tree: FolderTree) -> bool:
    """Whether every file could be changed in a namespace where there is one user only."""
    own = (os.getuid(), os.getgid())
    return own[0] == 0 or all((it.user, it.group) == own for it in tree.entries.values())


def _order(project: Path, root: Path, tree: FolderTree, *, redirect: bool) -> tuple[str, ...]:
    layers = [_layer(root, "written", project, project)]
    closed = []
    for number, (link, target) in enumerate(_leading_out(project, tree)):
        if not target.is_dir():
            closed.append(str(target))
            continue
        behind = _layer(root, f"behind-{number}", target, None)
        layers.append(behind)
        shown = root / "written" / link  # seen from outside it leads to what was written
        shown.parent.mkdir(parents=True, exist_ok=True)
        if not shown.is_symlink():
            shown.symlink_to(behind["upper"])
    return _started(project, layers=layers, closed=closed, redirect=redirect)


def _started(project: Path, **order: object) -> tuple[str, ...]:
    """Return the words that start a command in a namespace of its own."""
    from rocsteady.system import overlay  # noqa: PLC0415 - of one system only

    empty = {"layers": (), "closed": (), "shown": (), "copy": "", "redirect": False}
    mounts = msgspec.json.encode({**empty, **order, "folder": str(project)}).decode()
    return (sys.executable, "-I", "-S", overlay.__file__, mounts)


def _layer(root: Path, name: str, lower: Path, at: Path | None) -> dict[str, str]:
    upper, work = root / name, root / f"{name}-work"
    upper.mkdir(exist_ok=True)  # an earlier method may have failed
    work.mkdir(exist_ok=True)
    return {"lower": str(lower), "upper": str(upper), "work": str(work), "at": str(at or upper)}


def _leading_out(project: Path, tree: FolderTree) -> Iterator[tuple[str, Path]]:
    """Yield the links that lead out of the project, and to where."""
    inside = real_path(project)
    for link in tree.links():
        target = Path(real_path(project / link))
        if os.path.exists(target) and not target.is_relative_to(inside):  # noqa: PTH110 - as above
            yield link, target


def _works(scratch: Scratch, environment: Mapping[str, str]) -> bool:
    """Write a file over the folder, and look that it is not in it."""
    command = scratch.command(("sh", "-c", f": > {TRIAL}"))
    ask(command, within=TRIED_WITHIN, environment=environment)
    written = scratch.folder / TRIAL
    if not written.exists() or (scratch.project / TRIAL).exists():
        return False
    written.unlink()
    return True
