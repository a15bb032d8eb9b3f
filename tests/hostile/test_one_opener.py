"""Files that others can write are opened in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import rocsteady_train

import rocsteady

SOURCES = [Path(each.__path__[0]) for each in (rocsteady, rocsteady_train)]
# Who opens files by other means, and why that is right. Folders end with a slash.
MAY = {
    "untrusted_file.py": "the opener itself",
    "inside/": "opens what it makes itself, in the training process",
    "run/engines/torchrun.py": "files of the kernel",
    "hangs/looking/cgroups.py": "files of the kernel",
    "hangs/looking/gpu_counters.py": "files of the kernel",
    "hangs/looking/process_tree.py": "files of the kernel",
    "hangs/looking/gpu_counter_program.py": "files of the kernel, in a child with a deadline",
    "hangs/looking/kernel_log.py": "a device of the kernel, without blocking",
    "system/": "descriptors of its own; files of the kernel",
    "doctor/knowledge/": "data that comes with rocsteady, or that the user has named as such",
    "doctor/knowledge/report.py": "a file of the installation itself",
    "probe/folders.py": "regular files of the project, which it has listed",
    "store/writer.py": "a folder, to make its names durable",
    "checkpoints/tensor_files.py": "writes new files",
    "checkpoints/folder_changes.py": "a lock of its own",
    "store/redaction.py": "a file of the system, and data that comes with rocsteady",
    "cli/main.py": "/dev/null",
    "screens/screen.py": "/dev/null",
    "cli/report.py": "a page that it has just written, in a browser",
    "report/pages.py": "files that come with rocsteady",
    "cli/explain.py": "a pipe that the shell has opened: /dev/fd/N",
    "run/attempt/injection.py": "files that come with rocsteady, files of the kernel, new files",
    "probe/payload_site.py": "files that come with rocsteady",
    "plan/exports/wheels.py": "files of the installation itself",
    "run/telling/run_exports.py": "adds to a file of its own, and follows no link",
    "run/stop_deadline.py": "a pipe of its own",
    "run/engines/standby.py": "a pipe of its own, without blocking",
    "run/startup.py": "files of the system",
    "run/recovery/backoff.py": "files of the kernel",
    "checkpoints/integrity.py": "a part of a zip that was opened with care",
    "loop/roll_back.py": "adds to a file of its own",
}
OPENS = {"open", "read_text", "read_bytes", "fdopen"}


def opened_in(path: Path) -> list[int]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            name = function.id if isinstance(function, ast.Name) else name
            if name in OPENS:
                found.append(node.lineno)
    return found


def test_nothing_else_opens_files_that_others_can_write() -> None:
    found = {}
    for source, path in [(each, path) for each in SOURCES for path in sorted(each.rglob("*.py"))]:
        where = path.relative_to(source).as_posix()
        allowed = where in MAY or any(where.startswith(each) for each in MAY if each[-1] == "/")
        if not allowed and (lines := opened_in(path)):
            found[where] = lines

    assert found == {}, "use rocsteady_train.untrusted_file, or say in MAY why not"
