"""Where the script of a drill runs: in the user's folder, as it sees it, and never in it.

In this order, as the kernel lets us (``host/posix/overlaid.py``):

1. an overlay: what the script writes lies over the folder and goes elsewhere, nothing is copied;
2. a copy of the folder, shown in its place by a bind mount;
3. an overlay in which folders that are there already cannot be renamed, if a copy is too large;
4. a copy. Absolute paths into the folder are made to lead into the copy (``redirect.py``). Where
   the kernel has Landlock, the script can only read the folder itself.

Blocks are shared where the file system can; a copy has a size that is reasonable. A link that leads
out of the folder is followed, so that nothing is written behind it either.

Not covered: paths outside the folder, unless a link in it leads there. Those that the command names
are found by ``outside``; what a script makes up itself cannot be known before.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from pathlib import Path
from tempfile import gettempdir

import msgspec

from rocsteady.host.bounded_call import ask
from rocsteady.model import Value
from rocsteady.sandbox.folder_copy import copy_project, moved
from rocsteady.sandbox.folder_tree import FolderTree
from rocsteady.sandbox.redirect import Redirection

TRIED_WITHIN = timedelta(seconds=10)
TRIAL = ".rocsteady-trial"
COPIED_AT_ONCE = 256 << 20  # bytes that are rather copied than done without renaming
CODE = {".py", ".sh", ".yaml", ".yml", ".toml", ".ini", ".cfg"}  # read, not written
OF_THE_KERNEL = tuple(Path(f"/{name}") for name in ("dev", "proc", "sys"))


class Method(Enum):
    """How the user's folder is kept as it is."""

    OVERLAY = "overlay"
    OVERLAY_NO_RENAME = "overlay in which a folder that exists cannot be renamed"
    BIND = "copy, shown in place of the folder by a bind mount"
    COPY = "copy"


class Scratch(Value, frozen=True, kw_only=True):
    """What was made for a drill."""

    project: Path
    folder: Path  # where what the script writes is found
    before: tuple[str, ...]  # words that come before the command
    method: Method = Method.COPY
    redirected: tuple[str, ...] = ()  # lines of the copy whose paths led into the project

    @property
    def is_copy(self) -> bool:
        """Tell a copy from what is seen in place of the folder."""
        return self.method is Method.COPY

    @property
    def is_closed(self) -> bool:
        """Tell whether the kernel keeps the script from changing the folder beside a copy."""
        return self.is_copy and bool(self.before)

    def command(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return a command as it must be started here."""
        if self.is_copy:
            redirection = Redirection(self.project, self.folder, os.environ)
            words = [redirection.text(moved(word, self.project, self.folder)) for word in words]
        return (*self.before, *words)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment as the script needs it here."""
        if not self.is_copy:
            return dict(environment)
        found = Redirection(self.project, self.folder, environment).environment(environment)
        found["PYTHONDONTWRITEBYTECODE"] = "1"  # beside modules that are not in the copy
        if self.is_closed and self.project.is_relative_to(os.path.realpath(gettempdir())):
            found["TMPDIR"] = str(self.folder.parent)  # nothing new can be made above the project
        return found

    def inside(self, pattern: str) -> str:
        """Return where what a path or pattern names is written."""
        return moved(pattern, self.project, self.folder)


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
            small = not layers or _size(tree) <= COPIED_AT_ONCE
            bound = _bound(project, root, tree, environment, without) if small else None
            if bound is not None and _works(bound, environment):
                return bound
        elif layers:
            before = _order(project, root, tree, redirect=method is Method.OVERLAY)
            scratch = Scratch(project=project, folder=written, before=before, method=method)
            if _works(scratch, environment):
                return scratch
    copy = root / "copy" / (project.name or "root")
    if copy.exists():
        shutil.rmtree(copy)
    copy_project(project, copy, tree, frozenset(without))
    lines = Redirection(project, copy, environment).files(_files_of(copy))
    before = _closed(project, environment)
    return Scratch(project=project, folder=copy, before=before, redirected=tuple(map(str, lines)))


def _closed(project: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that start a command which can only read the folder; none without them."""
    if os.name == "nt":
        return ()
    from rocsteady.host.posix import read_only_folder  # noqa: PLC0415 - of one system only

    before = (sys.executable, read_only_folder.__file__, str(project))
    answer = ask((*before, "true"), within=TRIED_WITHIN, environment=environment)
    return before if answer.exit_code == 0 else ()


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


def _size(tree: FolderTree) -> int:
    return sum(entry.size for _, entry in tree.files()) if tree.whole else sys.maxsize


def _files_of(copy: Path) -> Iterator[str]:
    for folder, names, files in os.walk(copy):
        names[:] = [name for name in names if not (Path(folder) / name).is_symlink()]
        yield from (str((Path(folder) / name).relative_to(copy)) for name in files)


def outside(command: Sequence[str], project: Path) -> tuple[str, ...]:
    """Return the paths that a command names and the script may write to, outside its folder."""
    found = []
    for word in command[1:]:
        path = _path_in(word)
        if path is None:
            continue
        place = Path(os.path.realpath(project / path))
        if not place.is_relative_to(os.path.realpath(project)) and _may_write(place):
            found.append(path)
    return tuple(dict.fromkeys(found))


def remove(root: Path) -> None:
    """Remove all that was made; of what the kernel made for itself nobody may look into some."""
    for folder in (*root.glob("*-work/work"), *root.glob("*/*-work/work")):  # of one, or of several
        folder.chmod(0o700)
    shutil.rmtree(root)


def _path_in(word: str) -> str | None:
    """Return the path in a word that leads somewhere else than down from here, if there is one."""
    text = word.partition("=")[2] if word.startswith("-") and "=" in word else word
    path = os.path.expanduser(text) if text.startswith("~") else text  # noqa: PTH111 - keeps a "/" at the end
    return path if Path(path).is_absolute() or ".." in Path(path).parts else None


def _may_write(place: Path) -> bool:
    if place.suffix in CODE or any(place.is_relative_to(each) for each in OF_THE_KERNEL):
        return False
    there = next(path for path in (place, *place.parents) if path.exists())
    return os.access(there, os.W_OK)


def _may_overlay(tree: FolderTree) -> bool:
    """Tell whether every file could be changed in a namespace where there is one user only."""
    own = (os.getuid(), os.getgid())
    return own[0] == 0 or all((it.user, it.group) == own for it in tree.entries.values())


def _order(project: Path, root: Path, tree: FolderTree, *, redirect: bool) -> tuple[str, ...]:
    """Return the words that start a command over the folder."""
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
    from rocsteady.host.posix import overlay  # noqa: PLC0415 - of one system only

    empty = {"layers": (), "closed": (), "shown": (), "copy": "", "redirect": False}
    told = msgspec.json.encode({**empty, **order, "folder": str(project)}).decode()
    return (sys.executable, overlay.__file__, told)


def _layer(root: Path, name: str, lower: Path, at: Path | None) -> dict[str, str]:
    upper, work = root / name, root / f"{name}-work"
    upper.mkdir(exist_ok=True)  # an earlier method may have failed
    work.mkdir(exist_ok=True)
    return {"lower": str(lower), "upper": str(upper), "work": str(work), "at": str(at or upper)}


def _leading_out(project: Path, tree: FolderTree) -> Iterator[tuple[str, Path]]:
    """Yield the links that lead out of the project, and to where."""
    inside = os.path.realpath(project)
    for link in tree.links():
        target = Path(os.path.realpath(project / link))
        if target.exists() and not target.is_relative_to(inside):
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
