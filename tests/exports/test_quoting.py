"""Whatever stands in the user's command, each file runs that command and no other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocsteady.exports import container, kubernetes, skypilot, slurm, wsl2
from rocsteady.exports.export import Export, slug
from rocsteady.exports.file_header import comments
from rocsteady.exports.kubernetes import unexpanded
from rocsteady.exports.shell import command_elsewhere, folders
from rocsteady.exports.yaml_text import quoted

RUN = ["rocsteady", "run", "--yes", "--"]


def in_slurm(export: Export) -> str:
    text = slurm.sbatch(export)
    return text[text.index("out_of_time=\n") + 13 : text.rindex(" &\nrun=$!")]


def in_container(export: Export) -> str:
    text = container.run_script(export)
    return text[text.rindex(":rocsteady rocsteady run") + 11 :]


def in_kubernetes(export: Export) -> str:
    script = expanded(str(_command(export)[2]))
    return script[script.index("exec rocsteady") + 5 :]


def in_skypilot(export: Export) -> str:
    script = str(skypilot._table(export, None)["run"])
    return script[script.index("rocsteady run") :]


def in_wsl2(export: Export) -> str:
    text = wsl2.guide(export)
    fence, code = re.findall(r"^(`{3,})bash\n(.*?)^\1$", text, re.DOTALL | re.MULTILINE)[-1]
    assert fence not in code
    return str(code)


def expanded(text: str) -> str:
    """Fill in variables as Kubernetes does where NAME and HOME are set (third_party/expansion)."""
    known = {"NAME": "filled in", "HOME": "/root"}

    def one(found: re.Match[str]) -> str:
        whole = found.group()
        return "$" if whole == "$$" else known.get(found.group(1), whole)

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def _command(export: Export) -> list[object]:
    pod = kubernetes._pod(export, "image", "name")
    containers = pod["containers"]
    assert isinstance(containers, list)
    command = containers[0]["command"]
    assert isinstance(command, list)
    return command


@pytest.mark.parametrize("place", [in_slurm, in_container, in_kubernetes, in_skypilot, in_wsl2])
@settings(deadline=None)
@given(data=st.data())
def test_the_command_is_the_users_own(
    place: Callable[[Export], str],
    an_export: Callable[..., Export],
    hard_commands: st.SearchStrategy[tuple[str, ...]],
    data: st.DataObject,
) -> None:
    command = data.draw(hard_commands)
    export = an_export(command=command, unset=(), variables={}, checkpoints=())

    assert shlex.split(place(export)) == [*RUN, *command]


@pytest.mark.parametrize("place", [in_slurm, in_kubernetes, in_skypilot])
def test_what_a_scheduler_starts_again_resumes(
    place: Callable[[Export], str], an_export: Callable[..., Export]
) -> None:
    assert shlex.split(place(an_export()))[:4] == ["rocsteady", "run", "--yes", "--continue"]


@settings(deadline=None)
@given(text=st.text(alphabet="$()NAMEx ", max_size=12))
def test_kubernetes_fills_nothing_in(text: str) -> None:
    assert expanded(unexpanded(text)) == text


@settings(deadline=None)
@given(value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_variables_keep_their_values(an_export: Callable[..., Export], value: str) -> None:
    export = an_export(variables={"A": value}, unset=("B", "C"))

    lines = slurm.sbatch(export)
    start = lines.index("unset B C\nexport A=")
    words = shlex.split(lines[start : lines.index("set -m\n", start)])
    assert words == ["unset", "B", "C", "export", f"A={value}"]
    words = shlex.split(container.run_script(export).split("--workdir /project ")[1])
    assert words[words.index("--env") + 1] == f"A={value}"
    assert words[words.index("env") : words.index("rocsteady")] == ["env", "-u", "B", "-u", "C"]


@settings(deadline=None)
@given(text=st.text())
def test_a_quoted_text_is_one_line_of_ascii(text: str) -> None:
    line = quoted(text)

    assert line.isascii()
    assert line.isprintable()


@settings(deadline=None)
@given(st.text())
def test_a_comment_stays_a_comment(text: str) -> None:
    for line in comments([f"It is called {text}.", f"    cd {text}"]):
        assert line.startswith("# ")
        assert line.isascii()
        assert line.isprintable()


@settings(deadline=None)
@given(st.text())
def test_a_name_is_one_that_every_system_takes(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug(name))
    assert len(slug(name)) <= 40


@pytest.mark.parametrize(
    ("command", "elsewhere"),
    [
        (("/home/me/venv/bin/python", "/data/x"), ("python3", "/data/x")),
        ((r"C:\Users\me\venv\Scripts\python.exe", "t.py"), ("python3", "t.py")),
        (("py", "t.py"), ("python3", "t.py")),
        (("python3.12", "t.py"), ("python3", "t.py")),
        (("/opt/venv/bin/torchrun", "t.py"), ("torchrun", "t.py")),
        (("./train.sh",), ("./train.sh",)),
    ],
)
def test_where_the_program_lies_here_is_left_out(
    command: tuple[str, ...], elsewhere: tuple[str, ...]
) -> None:
    assert command_elsewhere(command) == elsewhere


def test_the_folders_that_a_job_writes_into() -> None:
    patterns = ("out/a/*.pt", "out/*.json", "runs/*/last.pt", "model.pt", "/else/x.pt", "../y.pt")

    assert folders(patterns) == (".", "out", "runs")
    assert folders((r"TRAINING\*.pt", r"C:\models\*.pt")) == ("TRAINING",)
