"""Every Python that the training starts: as without us, until it imports torch."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rocsteady_train.inside import wire

if TYPE_CHECKING:
    from tests.inside.conftest import Inside

# What the training runs on; CI also tries the oldest that is supported.
PYTHON = os.environ.get("ROCSTEADY_TEST_TRAINING_PYTHON", sys.executable)
SAY = """
    import json, sys
    ours = [name for name in sys.modules if "rocsteady" in name]
    main = sys.modules["__main__"]
    print(json.dumps([sys.argv, sys.path, ours, main.__name__, getattr(main, "__file__", None)]))
    print("sitecustomize" in sys.modules, getattr(sys, "theirs", None))
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_torch(inside: Inside, autograd: str = "def backward(): return 'gradient'\n") -> None:
    write(inside.folder / "torch" / "__init__.py", "")
    write(inside.folder / "torch" / "autograd.py", autograd)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train.py", "--lr", "1"],
        ["-m", "train", "x"],
        ["-c", "import train", "y"],
        ["-u", "train.py"],
    ],
    ids=["script", "module", "command", "option"],
)
def test_a_script_without_torch_sees_nothing_of_us(inside: Inside, arguments: list[str]) -> None:
    inside.script(SAY)

    watched = inside.run(PYTHON, *arguments)

    assert watched == inside.run(PYTHON, *arguments, watched=False)
    assert watched.code == 0
    assert json.loads(watched.out.splitlines()[0])[2] == []
    assert list(inside.injection.pages.iterdir()) == []


def test_the_users_own_sitecustomize_and_pythonpath_are_as_without_us(inside: Inside) -> None:
    write(inside.folder / "own" / "sitecustomize.py", "import sys; sys.theirs = __file__\n")
    path = f"{inside.folder}/own:{inside.folder}/other"
    script = inside.script(SAY)

    watched = inside.run(PYTHON, script, PYTHONPATH=path)

    assert watched == inside.run(PYTHON, script, watched=False, PYTHONPATH=path)
    assert b"True " + str(inside.folder).encode() + b"/own/sitecustomize.py" in watched.out


@pytest.mark.parametrize("error", ["raise ValueError('of theirs')", "import does_not_exist", "1 +"])
def test_a_users_sitecustomize_that_fails_says_so_as_without_us(inside: Inside, error: str) -> None:
    write(inside.folder / "own" / "sitecustomize.py", error + "\n")
    script, path = inside.script(SAY), str(inside.folder / "own")

    watched = inside.run(PYTHON, script, PYTHONPATH=path)

    assert watched == inside.run(PYTHON, script, watched=False, PYTHONPATH=path)
    assert b"Error in sitecustomize" in watched.err


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_where_we_cannot_get_in_nothing_breaks_and_there_is_no_page(
    inside: Inside, option: str
) -> None:
    write_torch(inside)
    script = inside.script("import sys; sys.path[:0] = ['.']; import torch.autograd; print('done')")

    assert inside.run(PYTHON, option, script) == (0, b"done\n", b"")
    assert list(inside.injection.pages.iterdir()) == []


def test_a_torch_that_fails_to_import_prints_what_it_prints_without_us(inside: Inside) -> None:
    write(inside.folder / "torch" / "__init__.py", "import torch.lib\n")
    write(inside.folder / "torch" / "lib.py", "raise OSError('libamdhip64.so.6: cannot open')\n")
    script = inside.script("import torch\n")

    watched = inside.run(PYTHON, script)

    assert watched == inside.run(PYTHON, script, watched=False)
    assert (watched.code, watched.err.count(b"File ")) == (1, 3)
    assert inside.page().end == wire.RAISED


def test_asking_whether_there_is_torch_does_not_spoil_the_hook(inside: Inside) -> None:
    write_torch(inside)
    script = inside.script("""
        import importlib.util
        importlib.util.find_spec("torch")
        import torch.autograd
        assert "exec_module" not in vars(torch.autograd.__loader__)
        print(torch.autograd.backward())
    """)

    assert inside.run(PYTHON, script) == (0, b"gradient\n", b"")
    assert inside.page().words[wire.W_HOOKS] == 1 << wire.HOOKS.index("backward")
    assert inside.page().words[wire.W_BEATS] >= 2


def test_a_torch_that_we_do_not_know_leaves_a_note_and_works(inside: Inside) -> None:
    write_torch(inside, "")
    script = inside.script("import torch.autograd; print('done')")

    assert inside.run(PYTHON, script) == (0, b"done\n", b"")
    note = inside.notes()
    assert note.startswith("hook of torch.autograd: AttributeError: ")
    assert note.count("\n") == 1


def test_a_page_that_cannot_be_made_leaves_a_note_and_the_script_works(inside: Inside) -> None:
    write_torch(inside)
    script = inside.script("""
        import os
        os.mkdir(os.environ["ROCSTEADY_PAGES"] + f"/{os.getpid()}.page")
        import torch.autograd
        print(torch.autograd.backward())
    """)

    assert inside.run(PYTHON, script) == (0, b"gradient\n", b"")
    assert "heartbeat is off: IsADirectoryError" in inside.notes()


def test_a_folder_for_pages_that_is_gone_harms_nobody(inside: Inside) -> None:
    write_torch(inside)
    script = inside.script("import torch.autograd; print(torch.autograd.backward())")
    inside.injection.pages.rmdir()

    assert inside.run(PYTHON, script) == (0, b"gradient\n", b"")


def test_an_error_of_ours_turns_the_heartbeat_off_and_leaves_a_note(inside: Inside) -> None:
    write_torch(inside)
    hot = inside.injection.site / "_rocsteady_inside" / "heartbeat" / "step_beats.py"
    hot.write_text(hot.read_text().replace("after = back[heart.phase]", "after = back[1000]"))
    script = inside.script("import torch.autograd as a; print(a.backward(), a.backward())")

    assert inside.run(PYTHON, script) == (0, b"gradient gradient\n", b"")
    assert inside.notes() == "heartbeat is off: IndexError: tuple index out of range\n"
    assert inside.pages() == []


def test_a_keyboard_interrupt_of_the_scripts_own_ends_it_as_without_us(inside: Inside) -> None:
    write_torch(inside)
    script = inside.script("import torch\nraise KeyboardInterrupt\n")
    ends = [inside.run(PYTHON, script, watched=watched).code for watched in (False, True)]

    assert ends == [-signal.SIGINT] * 2


def test_a_refused_ptracer_leaves_a_note(inside: Inside) -> None:
    write(inside.folder / "torch" / "__init__.py", "")
    page = inside.injection.site / "_rocsteady_inside" / "heartbeat" / "page.py"
    page.write_text(page.read_text().replace("/proc/sys/kernel/yama/ptrace_scope", "/proc"))
    script = inside.script("import torch; print('done')")

    done = inside.run(PYTHON, script)

    assert done == (0, b"done\n", b"")
    if not Path("/proc/sys/kernel/yama").exists():
        assert inside.notes() == "prctl(PR_SET_PTRACER): Invalid argument\n"


def test_it_costs_less_than_3_ms_at_each_start(inside: Inside) -> None:
    cost = re.compile(rb"\| +(\d+) \|   sitecustomize$", re.MULTILINE)
    command = (PYTHON, "-X", "importtime", "-c", "pass")
    found = [
        cost.findall(inside.run(*command).err.replace(b"import time:", b"|")) for _ in range(9)
    ]

    assert min(int(times[-1]) for times in found if times) < 3000


def test_the_site_folder_offers_one_package_and_no_other_module(inside: Inside) -> None:
    (inside.injection.site / "another.py").write_text("")
    script = inside.script("""
        import importlib.util
        names = "_rocsteady_inside", "another", "heart", "wire"
        print([name for name in names if importlib.util.find_spec(name)])
    """)

    assert inside.run(PYTHON, script) == (0, b"['_rocsteady_inside']\n", b"")
