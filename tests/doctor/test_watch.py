"""tools/watch_*.py: what is new upstream is printed once; the recorded pages have a README."""

from __future__ import annotations

import functools
import http.server
import importlib
import io
import json
import sys
import threading
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = Path(__file__).with_name("upstream_pages")

# Tables as they were before the first look: one rule about a resolved issue has no end, one has.
TABLES = {
    "sources.toml": """\
[sources.therock-7699]
owner = "ROCm"
name = "TheRock"
number = 7699
[sources.therock-7696]
owner = "ROCm"
name = "TheRock"
number = 7696
[sources.notes]
owner = "AMD"
name = "ROCm 10.0"
""",
    "rules/all.toml": """\
[[rule]]
id = "rdna4-training-faults"
sources = ["therock-7699", "notes"]
[rule.when]
all = [{ fact = "gpu.gfx", is = "gfx1201" }, { fact = "torch.rocm", version = ">=7.2" }]
[[rule]]
id = "mi350-slower-training"
sources = ["therock-7696"]
[rule.when]
all = [{ any = [{ fact = "torch.rocm", version = ">=10.0,<10.2" }] }]
""",
    "failures.toml": """\
[[failure]]
id = "segfault"
sources = ["ROCm/TheRock#7702"]
""",
    "gpus.toml": """\
[[arch]]
gfx = "gfx1201"
cards = ["Radeon RX 9070 XT"]
[[arch]]
gfx = "gfx1200"
cards = ["Radeon RX 9060 XT"]
[[arch]]
gfx = "gfx950"
cards = ["Instinct MI355X", "Instinct MI350P"]
[[arch]]
gfx = "gfx942"
cards = ["Instinct MI300X"]
[[arch]]
gfx = "gfx90a"
cards = ["Instinct MI210"]
[[arch]]
gfx = "gfx908"
cards = ["Instinct MI100"]
[[arch]]
gfx = "gfx1100"
cards = ["Radeon RX 7900 XTX"]
[[arch]]
gfx = "gfx1151"
cards = ["Ryzen AI Max+ 395"]
[[arch]]
gfx = "gfx1153"
cards = ["Ryzen AI 5 435"]
""",
    "exports.toml": """\
[[image]]
rocm = "10.0"
torch = "2.13.0"
[[image]]
rocm = "10.0.0"
torch = "2.12.0"
""",
    "wheels.toml": """\
[[index]]
id = "amd"
torch = ">=2.14,<2.15"
rocm = "10.1"
[index.supported]
linux = ["gfx908", "gfx942", "gfx950", "gfx1010", "gfx1100", "gfx1151", "gfx1153", "gfx1200",
  "gfx1201"]
windows = ["gfx1100", "gfx1151"]
[index.tested]
linux = ["gfx942", "gfx1100", "gfx1201"]
windows = ["gfx1100"]
[[index]]
id = "amd-10.0"
torch = ">=2.11,<2.14"
rocm = "10.0"
[index.supported]
linux = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1153", "gfx1200",
  "gfx1201"]
windows = ["gfx1100", "gfx1151", "gfx1153", "gfx1200", "gfx1201"]
[index.tested]
linux = ["gfx942", "gfx1100", "gfx1201"]
windows = ["gfx1100"]
""",
    "variables.toml": """\
# A comment that stays.

[[variable]]
name = "HSA_ENABLE_SDMA"
read_by = "ROCr"
[[variable]]
name = "HIP_GONE"
read_by = "HIP"
[[variable]]
name = "NCCL_PROTO"
read_by = "RCCL"
[[variable]]
name = "PYTORCH_GONE"
read_by = "PyTorch"
""",
    "signatures/all.toml": """\
[[signature]]
id = "one"
literals = ["an error that torch prints", "short"]
""",
    "upstream.toml": """\
# A comment that stays.
[left_out]
"ROCm/TheRock#8793" = "Valgrind in WSL: no training runs under it."
""",
}


@pytest.fixture(scope="module")
def tool() -> Iterator[Callable[[str], ModuleType]]:
    """Return a program of tools/ by name; they import each other by place."""
    sys.path.insert(0, str(ROOT / "tools"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "tools"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, text in TABLES.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "data"


@pytest.fixture
def look(
    tool: Callable[[str], ModuleType], data: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    def run(name: str, *arguments: str | Path, code: int = 0, write: bool = True) -> list[str]:
        module = tool(f"watch_{name}")
        given = [*map(str, arguments), "--data", str(data), "--seen", str(data.parent / "seen")]
        capsys.readouterr()
        found = tool("watch").run(name, module.look, [*given, *["--write"] * write])
        assert found == code
        return capsys.readouterr().out.splitlines()

    return run


def watcher(data: Path, name: str) -> dict[str, Any]:
    rows = tomllib.loads((data / "upstream.toml").read_text())["watcher"]
    return next(row for row in rows if row["name"] == name)


def test_from_10_0_to_10_1(look: Callable[..., list[str]], data: Path) -> None:
    first = look("notes", "--pages", PAGES / "10.0")
    again = look("notes", "--pages", PAGES / "10.0")
    found = look("notes", "--pages", PAGES / "10.1")

    assert [line.split(" (")[0] for line in first if "known issue" in line] == [
        f"known issue ROCm/TheRock#{number}: no rule" for number in (7697, 7700, 7701)
    ]
    assert again == []
    # What an audit had found by hand: each known issue but the one left out and those that an
    # entry cites, a rule without an end, two versions of torch, GPUs, a card, and the images.
    known = (8878, 8787, 8791, 8792, 8794, 8842, 8843, 8844)
    assert [line.split(" (")[0] for line in found] == [
        *(f"known issue ROCm/TheRock#{number}: no rule" for number in known),
        "resolved ROCm/TheRock#7699: rule rdna4-training-faults has no upper bound",
        "AMD Radeon AI PRO R9600",
        "image rocm10.1.0 with torch 2.12.0: not in exports.toml",
        "image rocm10.1.0 with torch 2.13.0: not in exports.toml",
        "image rocm10.1.0 with torch 2.14.0: not in exports.toml",
        "torch for ROCm 10.1: AMD has >=2.12,<2.15, amd >=2.14,<2.15",
        "AMD lists for Linux 10.1: we lack gfx90a",
        "AMD lists for Linux 10.1: only we have gfx1010",
        "AMD lists for Windows 10.1: we lack gfx1153 gfx1200 gfx1201",
    ]
    assert look("notes", "--pages", PAGES / "10.1") == []
    assert watcher(data, "notes")["at"] == "ROCm 10.1.0"
    text = (data / "upstream.toml").read_text()
    assert text.startswith("# A comment that stays.")


def test_what_is_done_is_no_longer_open(look: Callable[..., list[str]], data: Path) -> None:
    look("notes", "--pages", PAGES / "10.1")
    before = watcher(data, "notes")["open"]
    rules = data / "rules/all.toml"
    rules.write_text(rules.read_text().replace(">=7.2", ">=7.2,<10.1"))
    left_out = data / "upstream.toml"
    key = '"ROCm/TheRock#8842" = "ComfyUI"'
    left_out.write_text(left_out.read_text().replace("[left_out]", f"[left_out]\n{key}"))

    found = look("notes", "--pages", PAGES / "10.1")

    assert found == []
    gone = {*before} - {*watcher(data, "notes")["open"]}
    assert {line.split(":")[0] for line in gone} == {
        "known issue ROCm/TheRock#8842",
        "resolved ROCm/TheRock#7699",
    }


def test_an_invented_10_2_is_ten_minutes_of_reading(look: Callable[..., list[str]]) -> None:
    for name in ("notes", "issues"):
        look(name, "--pages", PAGES / "10.1")

    notes = look("notes", "--pages", PAGES / "10.2")
    issues = look("issues", "--pages", PAGES / "10.2")

    assert notes == [
        "known issue ROCm/TheRock#9901: no rule (Invented: gradients of gfx1201 are wrong in bf16)",
        "AMD Radeon RX 9099 XT (invented) (gfx1202): not in gpus.toml",
        "image rocm10.2.0 with torch 2.14.0: not in exports.toml",
        "image rocm10.2.0 with torch 2.15.0: not in exports.toml",
        "ROCm 10.2.0: wheels.toml has no index for it",
    ]
    assert issues == [
        "open ROCm/TheRock#9901: no rule (Invented: gradients of gfx1201 are wrong in bf16)",
        "open pytorch/pytorch#999001: no rule (Invented: training stops after a million steps)",
    ]
    assert look("issues", "--pages", PAGES / "10.2") == []


def test_issues_that_upstream_marked(look: Callable[..., list[str]]) -> None:
    found = look("issues", "--pages", PAGES / "10.1")

    assert "closed ROCm/TheRock#7699: rule rdna4-training-faults has no upper bound" in found
    assert sum("open ROCm/TheRock#" in line for line in found) == 8  # one is left out
    assert not [line for line in found if "8900" in line]  # a pull request


def test_a_page_that_cannot_be_read_fails_and_nothing_is_remembered(
    look: Callable[..., list[str]], data: Path, tmp_path: Path
) -> None:
    found = look("notes", "--pages", tmp_path / "nothing", code=1)

    assert "not read: https://raw.githubusercontent.com/ROCm/rocm-docs" in found[0]
    assert "watcher" not in tomllib.loads((data / "upstream.toml").read_text())


def test_without_write_a_second_look_shows_the_same(look: Callable[..., list[str]]) -> None:
    first = look("issues", "--pages", PAGES / "10.1", write=False)

    assert look("issues", "--pages", PAGES / "10.1", write=False) == first != []


def sources(folder: Path, *, later: bool) -> Path:
    """Write sources of ROCm in the form of the files that declare variables."""
    flag = f'var = os::GetEnvVar("HSA_ENABLE_SDMA");\n  sdma_ = (var == "{int(later)}") ? x : y;\n'
    hip = 'release(uint, GPU_QUEUES, 4, \\\n  "Queues")\n'
    if later:
        hip = hip.replace("4", "8") + 'debug(bool, HIP_NEW, false, \\\n "x")\n'
    else:
        hip += 'release(bool, HIP_GONE, true, \\\n "x")\n'
    files = {
        "rocr/flag.h": flag,
        "clr/flags.hpp": f"#define RUNTIME_FLAGS(debug,release) \\\n{hip}",
        "rccl/src/init.cc": 'NCCL_PARAM(Proto, "PROTO", -2);\nx = ncclGetEnv("NCCL_ALGO");\n',
        "miopen/src/env.cpp": "MIOPEN_DECLARE_ENV_VAR_BOOL(MIOPEN_FIND_MODE)\n",
        "rccl/test/skip.cc": 'NCCL_PARAM(Test, "TEST", -2);\n',
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_variables_of_two_releases(
    look: Callable[..., list[str]], data: Path, tmp_path: Path
) -> None:
    first = look("variables", "10.0", sources(tmp_path / "a", later=False))
    second = look("variables", "10.1", sources(tmp_path / "b", later=True))
    again = look("variables", "10.1", tmp_path / "b")

    assert (first, again) == ([], [])
    assert second == [
        "HIP_GONE: HIP 10.1 does not read it",
        "HIP 10.0 to 10.1: GPU_QUEUES was 4, is 8",
        "HIP 10.0 to 10.1: gone HIP_GONE; variables.toml has it",
        "HIP 10.0 to 10.1: new HIP_NEW",
        "ROCr 10.0 to 10.1: HSA_ENABLE_SDMA was 0, is 1",
    ]
    rows = tomllib.loads((data / "variables.toml").read_text())["variable"]
    assert {row["name"]: row.get("found_in") for row in rows} == {
        "HSA_ENABLE_SDMA": "ROCm 10.1",
        "HIP_GONE": "ROCm 10.0",
        "NCCL_PROTO": "ROCm 10.1",
        "PYTORCH_GONE": None,
    }
    assert look("variables", "10.2", tmp_path / "empty", code=1)


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("4", "8", " was 4, is 8"),
        ("a b", "b a", " was a b, is b a"),
        ("a b", "b c", " has lost a and has got c"),
        ("a b", "a b c", " has got c"),
    ],
)
def test_of_a_list_only_the_difference_is_shown(
    tool: Callable[[str], ModuleType], old: str, new: str, shown: str
) -> None:
    assert tool("watch")._difference(old, new) == shown


def torch(folder: Path, version: str, header: str, python: str) -> Path:
    wheel = folder / f"torch-{version}-cp312-cp312-macosx_14_0_arm64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch/include/c10/cuda/CUDAAllocatorConfig.h", header)
        archive.writestr("torch/cuda/memory.py", python)
        archive.writestr("torch/testing/memory.py", "'PYTORCH_NOT_LOOKED_AT'")
    return wheel


def test_two_releases_of_torch(look: Callable[..., list[str]], tmp_path: Path) -> None:
    first, second = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
    order = f'get_env("{first}");\nget_env("{second}");\n'
    old = torch(tmp_path, "2.14.1", order, 'x("PYTORCH_GONE"); "an error that torch prints"')
    other = "\n".join(reversed(order.splitlines()))
    new = torch(tmp_path, "2.15.0", other, 'x("PYTORCH_NEW"); "short"')

    found = look("torch", old, new)

    assert look("torch", new) == []
    assert found == [
        (
            f"torch 2.14.1 to 2.15.0: search: order of the allocator's variables was {first}"
            f" {second}, is {second} {first}; see alloc-conf-shadowed, alloc-conf-too-new"
        ),
        "torch 2.14.1 to 2.15.0: gone text 'an error that torch prints'",
        "torch 2.14.1 to 2.15.0: gone variable PYTORCH_GONE; variables.toml has it",
        "torch 2.14.1 to 2.15.0: new variable PYTORCH_NEW; variables.toml lacks it",
    ]


def test_the_entries_behind_the_searches_exist(tool: Callable[[str], ModuleType]) -> None:
    module = tool("watch_torch")
    text = "\n".join(path.read_text() for path in tool("refresh").DATA.rglob("*.toml"))

    for search in tomllib.loads(module.SEARCHES.read_text())["search"]:
        assert [name for name in search["for"] if f'id = "{name}"' not in text] == []


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Serves parts of files, as PyPI's files do, and counts what it sends."""

    sent = 0

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        if wanted is None:
            super().do_GET()
            return
        start, end = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
        content = Path(self.translate_path(self.path)).read_bytes()[start : end + 1]
        Ranges.sent += len(content)
        self.send_response(206)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    folder = tmp_path / "index"
    folder.mkdir()
    handler = functools.partial(Ranges, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", folder
        server.shutdown()


def wheel(folder: Path, version: str, *libraries: str) -> None:
    """Add a wheel of two megabytes to an index, and list it."""
    name = f"bitsandbytes-{version}-py3-none-manylinux_2_24_x86_64.whl"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("bitsandbytes/large.bin", bytes(2_000_000))
        for library in libraries:
            archive.writestr(f"bitsandbytes/{library}", b"x")
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content.getvalue())
    listed = "".join(
        f'<a href="{path.name}#sha256=0" data-requires-python="&gt;=3.10">{path.name}</a>\n'
        for path in sorted(folder.glob("*.whl"))
    )
    (folder / "index.html").write_text(listed)


def test_contents_of_packages_by_ranges(
    look: Callable[..., list[str]],
    index: tuple[str, Path],
    tool: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    data: Path,
) -> None:
    address, folder = index
    module = tool("watch_packages")
    package = module.Package(address, "bitsandbytes", "manylinux_2_24_x86_64")
    monkeypatch.setattr(module, "PACKAGES", (package,))
    monkeypatch.setattr(module, "INDEXES", (f"{address}amd/",))
    (folder / "amd").mkdir()
    gpus = folder / "amd/index.html"
    gpus.write_text('<a href="amd-torch-device-gfx1100/">amd-torch-device-gfx1100</a>\n')
    wheel(folder / "bitsandbytes", "0.50.2", "librocm714.so", "librocm64.so.1")

    first = look("packages")
    wheel(folder / "bitsandbytes", "0.51.0", "librocm714.so", "librocm716.so")
    wheel(folder / "bitsandbytes", "0.52.0rc1", "librocm720.so")
    gpus.write_text(f"{gpus.read_text()}<a href='x'>amd-torch-device-gfx1201</a>\n")
    second = look("packages")

    name = "bitsandbytes (manylinux_2_24_x86_64) 0.50.2 to 0.51.0"
    assert first == []
    assert second == [
        f"{name}: gone librocm64.so.1",
        f"{name}: new librocm716.so",
        f"GPUs of {address}amd/ gfx1100 to gfx1100 gfx1201: new gfx1201",
    ]
    assert look("packages") == []
    assert Ranges.sent < 2_000_000
    # It stays until a person deletes it, and does not come back then.
    assert watcher(data, "packages")["changed"] == second
    text = (data / "upstream.toml").read_text()
    (data / "upstream.toml").write_text(text.split("changed = ")[0] + "changed = []\n")
    assert look("packages") == []


def test_what_was_seen_is_plain(look: Callable[..., list[str]], data: Path, tmp_path: Path) -> None:
    look("variables", "10.0", sources(tmp_path / "a", later=False))

    seen = json.loads((data.parent / "seen").read_text())["variables"]["HIP"]

    assert seen == {"at": "10.0", "names": {"GPU_QUEUES": "4", "HIP_GONE": "true"}}
