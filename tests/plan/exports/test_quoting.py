"""Whatever stands in the user's command, each file runs that command and no other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rocsteady.plan.exports.export import Export, command_elsewhere, folders, slug
from rocsteady.plan.exports.targets import TARGETS
from rocsteady.plan.exports.templates import comment, unexpanded, yaml_text

RUN = ["rocsteady", "run", "--yes", "--"]


def written(target: str, export: Export, name: str = "") -> str:
    files = TARGETS[target](export)
    return files[name] if name else next(iter(files.values()))


def in_slurm(export: Export) -> str:
    text = written("slurm", export)
    return text[text.index("\nsrun ") + 6 : text.rindex(" &\nrun=$!")]


def in_container(export: Export) -> str:
    text = written("container", export, "run-in-container.sh")
    return text[text.rindex(":rocsteady rocsteady run") + 11 :]


def in_kubernetes(export: Export) -> str:
    (pod,) = yaml.safe_load(written("kubernetes", export))["spec"]["template"]["spec"]["containers"]
    script = expanded(pod["command"][2])
    return script[script.index("exec rocsteady") + 5 :]


def in_skypilot(export: Export) -> str:
    script = str(yaml.safe_load(written("skypilot", export))["run"])
    return script[script.index("rocsteady run") :]


def in_wsl2(export: Export) -> str:
    text = written("wsl2", export)
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


@pytest.mark.parametrize("place", [in_slurm, in_container, in_kubernetes, in_skypilot, in_wsl2])
def test_what_a_scheduler_starts_again_resumes(
    place: Callable[[Export], str], an_export: Callable[..., Export]
) -> None:
    export = an_export(unset=(), variables={})

    assert shlex.split(place(export))[:5] == ["rocsteady", "run", "--yes", "--resume", "auto"]


@settings(deadline=None)
@given(text=st.text(alphabet="$()NAMEx ", max_size=12))
def test_kubernetes_fills_nothing_in(text: str) -> None:
    assert expanded(unexpanded(text)) == text


@settings(deadline=None)
@given(value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_variables_keep_their_values(an_export: Callable[..., Export], value: str) -> None:
    export = an_export(variables={"A": value}, unset=("B", "C"))

    lines = written("slurm", export)
    start = lines.index("unset B C\nexport A=")
    words = shlex.split(lines[start : lines.index("set -m\n", start)])
    assert words == ["unset", "B", "C", "export", f"A={value}"]
    words = shlex.split(
        written("container", export, "run-in-container.sh").split("--workdir /project ")[1]
    )
    assert words[words.index("--env") + 1] == f"A={value}"
    assert words[words.index("env") : words.index("rocsteady")] == ["env", "-u", "B", "-u", "C"]


@settings(deadline=None)
@given(text=st.text())
def test_yaml_is_read_back_as_it_was_meant(text: str) -> None:
    assert yaml_text(text).isascii()
    assert yaml.safe_load(f"a: {yaml_text(text)}\n") == {"a": text}
    assert yaml.safe_load(f"- {yaml_text(text)}\n") == [text]
    assert yaml.safe_load(f"a:\n  b:\n    c: {yaml_text(text, 6)}\n") == {"a": {"b": {"c": text}}}


@settings(deadline=None)
@given(st.text())
def test_a_comment_stays_a_comment(text: str) -> None:
    for line in comment(f"It is called {text}.\n    cd {text}").splitlines():
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
