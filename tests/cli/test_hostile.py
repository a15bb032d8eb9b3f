"""The doctor ends within seconds whatever the machine does, imports no torch, writes nothing.

Everything here is real: programs that never return, a file system that never answers, devices,
FIFOs. Where the rights for that are missing, the test says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady

AT_MOST = 10.0  # seconds, on a busy machine; every trap lasts for minutes
NODE = "sys/class/kfd/kfd/topology/nodes/1"
MNT_DETACH = 2

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses Linux's own traps")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount and make devices")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def environment_with_torch(prefix: Path, version: str = "2.9.1+rocm6.4") -> Path:
    """Lay out an environment whose torch can be read and must not be imported."""
    site = prefix / "lib" / "python3.11" / "site-packages"
    (site / "torch").mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    (site / "torch" / "__init__.py").write_text("import time\ntime.sleep(1000)\n")
    (site / "torch" / "version.py").write_text(f"__version__ = '{version}'\nhip = '6.4.43484'\n")
    return prefix


def test_a_torch_whose_import_hangs_is_read_and_not_imported(
    cli: Rocsteady, tmp_path: Path
) -> None:
    prefix = environment_with_torch(tmp_path / "venv")

    told = cli("doctor", "--json", env={"VIRTUAL_ENV": str(prefix)})

    assert told.seconds < AT_MOST
    assert "2.9.1+rocm6.4" in json.loads(told.out)["machine"]["torch"]


def test_vendor_tools_are_never_started(cli: Rocsteady, tmp_path: Path) -> None:
    started = tmp_path / "started"
    trap = f"#!/bin/sh\ntrap '' TERM\necho $0 >> {started}\nwhile :; do sleep 1000; done\n"
    for tool in ("rocm-smi", "amd-smi", "rocminfo", "rocm_agent_enumerator", "hipinfo", "lspci"):
        script(tmp_path / "bin" / tool, trap)

    told = cli("doctor", env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})

    assert told.code in (0, 1)
    assert told.seconds < AT_MOST
    assert not started.exists()


def test_a_python_that_never_answers_is_given_up_and_said(cli: Rocsteady, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    shim = (
        f"#!/bin/sh\ntrap '' TERM INT\necho $$ >> {pids}\nsleep 1000 &\necho $! >> {pids}\nwait\n"
    )
    python = script(tmp_path / "shims" / "python3", shim)

    told = cli("doctor", "-v", "--python", python)

    assert told.seconds < AT_MOST
    assert "did not report in time" in told.out
    for pid in pids.read_text().split():
        status = Path("/proc", pid, "stat")
        assert not status.exists() or ") Z " in status.read_text(), f"{pid} still runs"


def test_a_shim_that_answers_is_believed(cli: Rocsteady, tmp_path: Path) -> None:
    prefix = environment_with_torch(tmp_path / "venv")
    answer = json.dumps([str(prefix), "/usr", "3.11.7", "linux"])
    python = script(tmp_path / "shims" / "python3", f"#!/bin/sh\necho '{answer}'\n")

    told = cli("doctor", "--json", "--python", python)

    assert "2.9.1+rocm6.4" in json.loads(told.out)["machine"]["torch"]


def gpu_folder(root: Path) -> Path:
    """Lay out one KFD node below a folder root."""
    node = root / NODE
    node.mkdir(parents=True)
    (node / "gpu_id").write_text("4711\n")
    (node / "properties").write_text("simd_count 192\nsimd_per_cu 2\ngfx_target_version 110000\n")
    return node


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 4096, b"\xff\xfe\x80 1\n", b"simd_count -1\n" * 9, b"9" * 65536]
)
def test_garbage_is_passed_over(cli: Rocsteady, tmp_path: Path, content: bytes) -> None:
    node = gpu_folder(tmp_path / "root")
    for path in (node / "properties", node / "gpu_id"):
        path.write_bytes(content)

    told = cli("doctor", "--root", tmp_path / "root")

    assert told.code in (0, 1), told.err
    assert told.seconds < AT_MOST


def test_a_file_of_ten_megabytes_is_read_up_to_the_limit(cli: Rocsteady, tmp_path: Path) -> None:
    node = gpu_folder(tmp_path / "root")
    with (node / "properties").open("ab") as stream:
        stream.write(b"filler 1\n" * 1_200_000)

    told = cli("doctor", "--json", "--root", tmp_path / "root")

    assert told.seconds < AT_MOST
    assert "gfx1100" in json.loads(told.out)["machine"]["gpus"][0]


def test_fifos_and_sockets_are_not_opened(cli: Rocsteady, tmp_path: Path) -> None:
    node = gpu_folder(tmp_path / "root")
    for path in (node / "properties", node / "gpu_id"):
        path.unlink()
    os.mkfifo(node / "properties")
    os.mknod(node / "gpu_id", stat.S_IFSOCK | 0o600)

    told = cli("doctor", "-v", "--root", tmp_path / "root")

    assert told.seconds < AT_MOST
    assert told.out.count("not a regular file") == 2


@as_root
def test_devices_are_not_opened(cli: Rocsteady, tmp_path: Path) -> None:
    node = gpu_folder(tmp_path / "root")
    (node / "properties").unlink()
    os.mknod(node / "properties", stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero: no end

    told = cli("doctor", "-v", "--root", tmp_path / "root")

    assert told.seconds < AT_MOST
    assert "not a regular file" in told.out


libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str, flags: int, data: str) -> None:
    arguments = (source.encode(), os.fsencode(target), kind.encode(), flags, data.encode())
    if libc.mount(*arguments) != 0:
        pytest.skip(f"cannot mount here: {os.strerror(ctypes.get_errno())}")


@contextlib.contextmanager
def file_system_that_never_answers(folder: Path) -> Iterator[None]:
    """Mount FUSE and leave every request unanswered, as a dead server does."""
    try:
        channel = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no FUSE here: {error}")
    try:
        options = f"fd={channel},rootmode=40000,user_id=0,group_id=0,allow_other"
        mount("never", folder, "fuse", 0, options)
        try:
            yield
        finally:
            libc.umount2(os.fsencode(folder), MNT_DETACH)
    finally:
        os.close(channel)


@as_root
def test_a_file_system_that_never_answers_is_given_up(cli: Rocsteady, tmp_path: Path) -> None:
    node = gpu_folder(tmp_path / "root")
    (node / "mem_banks").mkdir()
    with file_system_that_never_answers(node / "mem_banks"):
        told = cli("doctor", "--json", "--root", tmp_path / "root")

    assert told.seconds < AT_MOST
    diagnosis = json.loads(told.out)
    assert "gfx1100" in diagnosis["machine"]["gpus"][0]
    assert any("mem_banks" in entry["what"] for entry in diagnosis["unchecked"])


@as_root
def test_an_environment_on_a_dead_server_is_given_up(cli: Rocsteady, tmp_path: Path) -> None:
    prefix = tmp_path / "venv"
    prefix.mkdir()
    with file_system_that_never_answers(prefix):
        told = cli("doctor", "-v", env={"VIRTUAL_ENV": str(prefix)})

    assert told.seconds < AT_MOST
    assert told.code in (0, 1)
    assert "no answer" in told.out


@as_root
def test_a_read_error_is_said(cli: Rocsteady, tmp_path: Path) -> None:
    node = gpu_folder(tmp_path / "root")
    (node / "gpu_id").write_text("1\n")
    bind = 4096  # MS_BIND
    mount(f"/proc/{os.getpid()}/mem", node / "properties", "", bind, "")  # its first byte is EIO
    try:
        told = cli("doctor", "-v", "--root", tmp_path / "root")
    finally:
        libc.umount2(os.fsencode(node / "properties"), MNT_DETACH)

    assert told.seconds < AT_MOST
    assert "Input/output error" in told.out


@pytest.mark.parametrize(
    "files",
    [
        {"/../../etc/passwd": "x"},
        {"etc/passwd": "x"},
        {"/sys/a": {"link": "/sys/b"}, "/sys/b": {"link": "/sys/a"}},
        {"/sys": {"link": "../../../../../../../../etc"}, "/proc/version": "x"},
        {f"/{NODE}/properties": {"link": "/etc/passwd"}, "/proc/version": "x"},
        {f"/{NODE}/properties": {"errno": "EVIL"}, "/proc/version": "x"},
        {f"/{NODE}/properties": "x" * 70_000},
        {"/proc/self/cgroup": "0::/../../../../etc", "/sys/x": ""},
    ],
)
def test_a_hostile_recording_reaches_nothing_outside(
    cli: Rocsteady, tmp_path: Path, files: dict[str, object]
) -> None:
    recording = tmp_path / "hostile.json"
    parts = {"version": 1, "note": "", "platform": "linux", "folder": "/", "environment": {}}
    recording.write_text(json.dumps({**parts, "files": files}))

    told = cli("machine", "--json", "--root", recording)

    assert told.code in (0, 3), told.err
    assert told.seconds < AT_MOST
    assert "root:" not in told.out


def test_a_folder_root_does_not_follow_links_out(cli: Rocsteady, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("simd_count 192\ngfx_target_version 110000\n")
    node = gpu_folder(tmp_path / "root")
    (node / "properties").unlink()
    (node / "properties").symlink_to(outside)

    machine = json.loads(cli("machine", "--json", "--root", tmp_path / "root").out)

    assert machine["gpus"]["gpus"][0]["gfx"] is None
    assert machine["variables"] == []


def test_with_a_root_the_live_environment_is_not_mixed_in(cli: Rocsteady) -> None:
    told = cli("machine", "--json", "--root", cli.machine("rx7900xtx"), env={"HSA_XNACK": "1"})

    assert "HSA_XNACK" not in told.out


AUDITED = """
import sys
seen = []
def hook(event, arguments):
    if event == "open" and arguments[1] is not None and set(str(arguments[1])) & set("wax+"):
        seen.append(f"wrote {arguments[0]}")
    elif event == "import" and str(arguments[0]).partition(".")[0] == "torch":
        seen.append("imported torch")
    elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"):
        seen.append(f"started {arguments}")
    elif event in ("os.mkdir", "os.rename", "os.remove", "socket.connect", "shutil.rmtree"):
        seen.append(f"{event} {arguments}")
sys.dont_write_bytecode = True
sys.addaudithook(hook)
from rocsteady.cli.main import main
sys.argv = ["rocsteady", *sys.argv[1:]]
try:
    main()
finally:
    print("\\n".join(seen), file=sys.stderr)
"""


def test_it_starts_nothing_writes_nothing_and_imports_no_torch(
    cli: Rocsteady, tmp_path: Path
) -> None:
    prefix = environment_with_torch(tmp_path / "venv")
    done = subprocess.run(
        [sys.executable, "-c", AUDITED, "doctor"],
        capture_output=True,
        check=False,
        text=True,
        env={**cli.environment, "VIRTUAL_ENV": str(prefix)},
        cwd=tmp_path,
    )

    assert "2.9.1+rocm6.4" in done.stdout
    assert done.stderr.strip() == ""


def test_a_home_that_cannot_be_written_changes_nothing(cli: Rocsteady, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o555)

    told = cli("doctor", env={"HOME": str(home)})

    assert told.code in (0, 1)
    assert list(home.iterdir()) == []


@pytest.mark.slow
def test_a_real_torch_is_read_right(cli: Rocsteady) -> None:
    python = os.environ.get("ROCSTEADY_TEST_TORCH_PYTHON")
    if not python:
        pytest.fail("ROCSTEADY_TEST_TORCH_PYTHON names no interpreter with torch: use nox -s slow")
    asked = [python, "-c", "import torch; print(torch.__version__)"]
    version = subprocess.check_output(asked, text=True).strip()

    machine = json.loads(cli("machine", "--json", "--python", python).out)

    assert machine["torch"]["version"] == version
    assert machine["torch"]["build"] == "cpu"
