"""``rocsteady probe -- COMMAND`` as a person types it, with a fault below the dispatcher."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady

STAGED = Path(__file__).parents[1] / "probe" / "staged"
SCRIPT = """
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
optimizer = torch.optim.AdamW(net.parameters())
for step in range(6):
    loss = net(torch.randn(64, 16)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.save(net.state_dict(), "last.pt")
"""


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def staged(cli: Rocsteady, fault: dict[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
    """Type a command in the project, with a fault below the dispatcher."""
    return subprocess.run(
        cli.line(*words),
        capture_output=True,
        check=False,
        text=True,
        timeout=900,
        cwd=cli.folder / "project",
        env={
            **cli.environment,
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(STAGED),
            "ROCSTEADY_STAGED_FAULT": json.dumps(fault),
        },
    )


def probe(cli: Rocsteady, python: str, fault: dict[str, Any], *words: str) -> Any:  # noqa: ANN401
    """Search in a project with a checkpoint, and see that nothing in it changed."""
    project = cli.folder / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    (project / "last.pt").write_bytes(b"a checkpoint")
    before = contents(project)
    done = staged(cli, fault, "probe", "--json", *words, "--", python, "train.py")
    assert contents(project) == before
    assert not list((cli.folder / ".local/state/rocsteady/causes").iterdir())
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert found["changed"] == []
    return found


@pytest.mark.ci
@pytest.mark.slow
def test_an_operation_that_crashes_is_cut_down_and_cured(
    cli: Rocsteady, torch_python: str, tmp_path: Path
) -> None:
    fault = {"operator": "aten::mm", "fault": "abort", "cured_by": {"BAR": "1"}}
    report = tmp_path / "issue.md"

    found = probe(
        cli, torch_python, fault, "--try", "FOO=1", "--try", "BAR=1", "--report", str(report)
    )

    assert found["operation"]["name"] == "aten::mm"
    assert found["operation"]["line"] == "train.py:8 in <module>"
    made = found["reproduction"]
    assert len(made["text"].splitlines()) <= 40
    assert [each["outcome"] for each in made["alone"]["tries"]] == ["crash"] * 5
    assert made["control"]["outcome"] == "ok"
    cures = {
        each["experiment"]["setup"]["name"]: [it["outcome"] for it in each["experiment"]["tries"]]
        for each in found["cures"]
    }
    assert cures == {"FOO=1": ["crash"] * 2, "BAR=1": ["ok"] * 5}
    written = report.read_text()
    for field in ("### Describe the bug", "### Versions", "PyTorch version: ", "STAGED FAULT"):
        assert field in written
    assert str(cli.folder) not in written


@pytest.mark.slow
def test_an_operation_that_ignores_sigterm_ends_within_its_limit(
    cli: Rocsteady, torch_python: str
) -> None:
    fault = {"operator": "aten::gelu_backward", "fault": "hang", "after": 2}

    found = probe(cli, torch_python, fault, "--hang-after", "4s", "--within", "5m")

    assert found["operation"]["name"] == "aten::gelu_backward"
    assert [each["outcome"] for each in found["reproducing"]["tries"]] == ["hang"] * 3
    assert found["reproduction"]["alone"]["tries"][0]["outcome"] == "hang"


@pytest.mark.slow
def test_a_run_that_gives_up_of_a_nan_is_searched_for_its_operation(
    cli: Rocsteady, torch_python: str
) -> None:
    """The script looks at its loss, and ends before a backward could tell."""
    look = "    if not torch.isfinite(loss): raise FloatingPointError(f'loss is {loss.item()}')\n"
    project = cli.folder / "project"
    project.mkdir()
    (project / "train.py").write_text(
        SCRIPT.replace("    optimizer.zero", f"{look}    optimizer.zero")
    )
    fault = {"operator": "aten::addmm", "fault": "nan", "after": 3}
    words = ("--find-cause", "--yes", "--no-workarounds", "--max-attempts", "1")

    done = staged(cli, fault, "run", *words, "--", torch_python, "train.py")

    assert done.returncode == 1, done.stderr
    assert "gave up" in done.stderr
    assert "operation   aten::addmm" in done.stdout, done.stdout + done.stderr
    assert "train.py:8" in done.stdout


@pytest.mark.slow
def test_a_healthy_script_accuses_nobody(cli: Rocsteady, torch_python: str) -> None:
    fault = {"operator": "aten::mm", "fault": "abort", "dtype": "float64"}

    found = probe(cli, torch_python, fault)

    assert (found["operation"], found["reproduction"], found["cures"]) == (None, None, [])
    assert [each["outcome"] for each in found["reproducing"]["tries"]] == ["ok"] * 3


def test_what_belongs_to_a_search_needs_something_to_search(cli: Rocsteady) -> None:
    run = cli("probe", "--numbers")

    assert run.code == 2
    assert "rocsteady probe --numbers -- python train.py" in run.err


@pytest.mark.parametrize("text", ["FOO", "=1", "a b=1"])
def test_a_variable_is_name_and_value(cli: Rocsteady, text: str) -> None:
    run = cli("probe", "--try", text, "--", "python3", "train.py")

    assert run.code == 2
    assert "NAME=VALUE" in run.err


def test_a_build_is_not_downloaded_unasked(cli: Rocsteady) -> None:
    (cli.folder / "train.py").write_text("")

    run = cli("probe", "--try", "torch==2.9.1", "--", "python3", "train.py")

    assert run.code == 2
    assert "To allow it: --yes" in " ".join(run.err.split())
    assert not (cli.folder / ".local/state/rocsteady/builds").exists()
