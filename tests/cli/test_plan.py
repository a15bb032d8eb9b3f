"""``rocsteady plan`` and ``run --plan`` as a person types them, with real scripts."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

if os.name == "nt":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from supervised import Project, until

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schemas/plan.json").read_text())
MACHINES = Path(__file__).parents[1] / "machines"
JOB = """
total = { steps = 400 }
deadline = "2h"
budget = 5

[variants.small]
arguments = ["--small"]
words = "half the work"
"""
COUNTS = """
import sys, time
pause = 0.01 if "--small" in sys.argv else 0.02
for step in range(1, 401):
    time.sleep(pause)
    print(f"step {step}/400", flush=True)
open("model.bin", "w").write("done")
"""
TRAINS = """
import os, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 401):
    if os.environ.get("BROKEN_SWITCH") and step == 5:
        raise RuntimeError("CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`")
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    time.sleep(0.01)
torch.save(model.state_dict(), "model.pt")
"""  # noqa: E501 - as torch words it


def tree(folder: Path) -> str:
    """Hash names and contents of all files of a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(str(path.relative_to(folder)).encode())
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()


def planned(project: Project, *words: str, within: float = 240.0) -> dict[str, Any]:
    """Make a plan; the folder is as it was, and the JSON as the schema has it."""
    before = tree(project.folder)
    ended = project.say("plan", "--yes", "--json", *words, within=within)
    assert ended.code == 0, ended.err
    assert tree(project.folder) == before
    plan: dict[str, Any] = json.loads(ended.out)
    jsonschema.validate(plan, SCHEMA)
    return plan


def test_a_command_is_needed(cli: Rocsteady) -> None:
    ended = cli("plan")

    assert ended.code == 2
    assert "rocsteady plan -- python train.py" in ended.err


def test_a_program_that_is_not_there_is_refused_before_anything_is_made(cli: Rocsteady) -> None:
    ended = cli("plan", "--", "nonesuch", "train.py")

    assert (ended.code, "nonesuch: not found" in ended.err) == (2, True)


def test_without_trials_it_says_what_is_known_and_writes_nothing_here(cli: Rocsteady) -> None:
    (cli.folder / "project").mkdir()
    inner = type(cli)(cli.folder / "project")
    inner.environment = cli.environment

    ended = inner("plan", "--no-trials", "--yes", "--", "python3", "train.py")

    assert ended.code == 0, ended.err
    assert "CPU, unchanged" in ended.out
    assert "No recommendation: nothing was tried on this machine" in ended.out
    assert "--no-trials was given" in ended.out
    assert "Recommended" not in ended.out
    assert "--export" not in ended.out  # nothing speaks for renting yet
    assert all(len(line) <= 80 for line in ended.out.splitlines() if "rocsteady" not in line)
    assert list(inner.folder.iterdir()) == []


def test_a_plan_that_does_not_replace_a_measured_one_says_so(cli: Rocsteady) -> None:
    untried = ("plan", "--no-trials", "--yes", "--", "python3", "train.py")
    first = cli(*untried)
    (kept,) = cli.folder.rglob("plan.json")
    kept.write_text(kept.read_text().replace('"trials":0', '"trials":1'))
    measured = kept.read_text()
    second = cli(*untried)

    assert "not kept" not in first.out
    assert "This plan is not kept, as nothing was tried: run --plan," in second.out
    assert "plan --export" not in second.out + cli(*untried[:2], "--json", *untried[2:]).out
    assert kept.read_text() == measured


def test_an_option_that_the_plan_does_not_have_and_no_plan_at_all_are_said(cli: Rocsteady) -> None:
    without = cli("run", "--plan", "1", "--", "python3", "train.py")
    cli("plan", "--no-trials", "--yes", "--", "python3", "train.py")
    none = cli("run", "--plan", "99", "--", "python3", "train.py")
    other = cli("run", "--plan", "1", "--", "python3", "other.py")

    assert "no plan for this folder yet. Type: rocsteady plan" in without.err
    assert "has no option 99" in none.err
    assert "for another command. Type: rocsteady run --plan 1 -- python3 train.py, or" in other.err
    assert {without.code, none.code, other.code} == {2}


def test_what_cannot_be_run_here_says_what_to_do_instead(cli: Rocsteady) -> None:
    cli("plan", "--no-trials", "--yes", "--", "python3", "train.py")

    ended = cli("run", "--plan", "1")  # the plan's own command

    assert ended.code == 2
    assert "cannot run here: rocsteady plan --export skypilot --option 1" in ended.err


def test_files_for_elsewhere_are_written_once(cli: Rocsteady) -> None:
    without = cli("plan", "--export", "slurm")
    cli("plan", "--no-trials", "--yes", "--", "python3", "train.py")
    first = cli("plan", "--export", "slurm")
    again = cli("plan", "--export", "slurm", "--", "python3", "train.py")
    forced = cli("plan", "--export", "slurm", "--force", "--", "python3", "train.py")

    assert "no plan for this folder yet. Type: rocsteady plan" in without.err
    (name,) = (path.name for path in cli.folder.glob("*.sbatch"))
    assert first.out == f"Wrote {name}.\nWrote rocsteady-wheels/.\n", first
    assert len(list((cli.folder / "rocsteady-wheels").glob("*.whl"))) == 3
    assert (again.code, "use --force to overwrite" in again.err) == (2, True)
    assert (first.code, forced.code) == (0, 0)


def test_a_file_for_elsewhere_is_not_written_through_a_link(cli: Rocsteady) -> None:
    cli("plan", "--no-trials", "--yes", "--", "python3", "train.py")
    cli("plan", "--export", "slurm")
    (file,) = cli.folder.glob("*.sbatch")
    outside = cli.folder.parent / f"outside-{cli.folder.name}"
    file.unlink()
    file.symlink_to(outside)
    refused, forced = cli("plan", "--export", "slurm"), cli("plan", "--export", "slurm", "--force")
    (cli.folder / "rocsteady-wheels").rename(outside)
    (cli.folder / "rocsteady-wheels").symlink_to(outside)
    before = sorted((each.name, each.stat().st_mtime_ns) for each in outside.iterdir())
    linked = cli("plan", "--export", "slurm", "--force")

    assert (refused.code, "already exists" in refused.err) == (2, True)
    assert forced.code == 0, forced.err
    assert file.is_file()
    assert not file.is_symlink()
    assert (linked.code, "rocsteady-wheels cannot be written: it is a link" in linked.err) == (
        2,
        True,
    )
    assert sorted((each.name, each.stat().st_mtime_ns) for each in outside.iterdir()) == before


def test_a_file_for_elsewhere_has_the_command_of_the_plan(cli: Rocsteady) -> None:
    (cli.folder / "rocsteady.toml").write_text('command = ["python", "train.py"]\n')
    cli("plan", "--no-trials", "--yes", "--", "python3", "train.py", "--preset", "small")
    ended = cli("plan", "--export", "slurm")
    other = cli("plan", "--export", "slurm", "--force", "--", "python3", "train.py")

    (file,) = cli.folder.glob("*.sbatch")
    assert ended.code == 0, ended.err
    assert "rocsteady run --yes -- python3 train.py --preset small &\n" in file.read_text()
    assert (other.code, "the last plan is for another command" in other.err) == (2, True)


def test_a_plan_without_trials_and_its_file_take_one_command(cli: Rocsteady) -> None:
    words = ("--no-trials", "--export", "slurm", "--yes", "--", "python3", "train.py")
    made, again = cli("plan", *words), cli("plan", "--export", "slurm", "--force")

    (file,) = cli.folder.glob("*.sbatch")
    assert (made.code, again.code) == (0, 0), made.err
    assert "-- python3 train.py &\n" in file.read_text()


def test_a_file_for_elsewhere_says_how_many_gpus_it_guessed(cli: Rocsteady) -> None:
    torchrun = ("python3", "-m", "torch.distributed.run", "--nproc-per-node", "gpu", "train.py")
    cli("plan", "--no-trials", "--yes", "--", *torchrun)

    ended = cli("plan", "--export", "slurm", "--force", "--", *torchrun)

    assert ended.code == 0, ended.err
    assert "--nproc-per-node gpu is not a number; the file requests 1 GPU." in ended.err


def test_paths_of_variants_are_asked_about_too(cli: Rocsteady) -> None:
    inner = type(cli)(cli.folder / "project")
    inner.folder.mkdir()
    inner.environment = cli.environment
    outside = cli.folder / "models"
    (inner.folder / "rocsteady.toml").write_text(
        f'command = ["python3", "train.py"]\n[variants.small]\narguments = ["--out", "{outside}"]\n'
    )
    inner("plan", "--no-trials", "--yes")

    ended = inner("plan")

    assert ended.code == 2
    assert f"not protected, because outside this folder: {outside}." in " ".join(ended.err.split())


def test_a_file_for_elsewhere_says_what_of_an_option_it_lacks(cli: Rocsteady) -> None:
    cli("plan", "--no-trials", "--yes", "--", "python3", "train.py")
    (kept,) = cli.folder.glob(".local/state/rocsteady/plans/*/plan.json")
    plan = json.loads(kept.read_text())
    option = {"title": "", "basis": "trial"}
    plan["options"] = [
        {**option, "number": 1, "id": "cpu", "strategy": {"device": "cpu"}},
        {**option, "number": 3, "id": "variant-x", "variant": "x", "changes": "another model"},
        {**option, "number": 2, "id": "gpu+x", "strategy": {"workers": 0}},
    ]
    kept.write_text(json.dumps(plan))

    ended = cli("plan", "--export", "slurm", "--force")  # it may be run twice
    refused = cli("plan", "--export", "slurm", "--option", "1", "--force")

    assert "these settings of option 2 are not exported: num_workers=0." in ended.err
    assert (ended.code, refused.code) == (0, 2)
    assert "option 1 uses the CPU. Run it on that machine: rocsteady run -- python3" in refused.err


def test_an_option_of_the_last_plan_can_be_explained(cli: Rocsteady) -> None:
    without = cli("plan", "--details", "1", "--", "python3", "train.py")
    cli("plan", "--no-trials", "--yes", "--", "python3", "-c", "pass")
    all_of_it = cli("plan", "--details", "all", "--", "python3", "-c", "pass")
    wrong = cli("plan", "--details", "x", "--", "python3", "-c", "pass")

    assert (without.code, "no plan for this folder yet" in without.err) == (2, True)
    assert (all_of_it.code, all_of_it.err) == (0, "")
    assert "based on" in all_of_it.out
    assert (wrong.code, "neither a number nor 'all'" in wrong.err) == (2, True)


def test_a_recorded_machine_is_planned_without_trials_and_the_last_plan_stays(
    cli: Rocsteady,
) -> None:
    pair, words = cli.machines / "rx7900xt-pair.json", ("--yes", "--", "python3", "train.py")
    cli("plan", "--no-trials", *words)
    kept = cli("plan", "--details", "all", *words)
    ended = cli("plan", "--root", pair, *words)
    told = cli("plan", "--root", pair, "--json", *words)
    explained = cli("plan", "--root", pair, "--details", "1", *words)

    assert (ended.code, ended.err) == (0, "")
    said = " ".join(ended.out.split())
    assert "Nothing was tried on the recorded machine rx7900xt-pair.json" in said
    assert "all options are estimates" in said
    assert "GPU, unchanged" in said
    assert "No recommendation: there are no trials of this command to scale" in said
    assert "run --plan" not in said  # it could not be run here
    assert (explained.code, "Option 1: GPU, " in explained.out) == (0, True)
    assert "Nothing was tried on the recorded machine." in explained.out
    plan = json.loads(told.out)
    jsonschema.validate(plan, SCHEMA)
    assert plan["machine"] == "rx7900xt-pair.json"
    assert plan["options"][0]["id"] == "gpu+clean"  # without what harms comes before as it is
    assert {option["basis"] for option in plan["options"]} == {"estimate"}
    assert cli("plan", "--details", "all", *words).out == kept.out


def test_the_decision_page_of_the_last_plan_is_written_once(cli: Rocsteady) -> None:
    words = ("--", "python3", "train.py")
    without = cli("plan", "--report", "d.md", *words)
    cli("plan", "--no-trials", "--yes", *words)
    first = cli("plan", "--report", "d.md", *words)
    page = (cli.folder / "d.md").read_text()
    (cli.folder / "d.md").write_text("mine")
    again = cli("plan", "--report", "d.md", *words)
    kept = (cli.folder / "d.md").read_text()
    forced = cli("plan", "--report", "d.md", "--force", *words)

    assert (without.code, "no plan for this folder yet" in without.err) == (2, True)
    assert (first.code, first.out, first.err) == (0, "", "rocsteady: wrote d.md\n")
    assert page.startswith("# Decision: python3 train.py\n")
    assert (again.code, "use --force to overwrite" in again.err, kept) == (2, True, "mine")
    assert (forced.code, "## Today" in (cli.folder / "d.md").read_text()) == (0, True)


def test_a_decision_page_of_a_recorded_machine_says_that_nothing_was_tried(cli: Rocsteady) -> None:
    pair, words = cli.machines / "rx7900xt-pair.json", ("--yes", "--", "python3", "train.py")

    ended = cli("plan", "--root", pair, "--report", "d.html", *words)

    assert ended.code == 0, ended.err
    page = (cli.folder / "d.html").read_text()
    assert "rx7900xt-pair.json (recorded)" in page
    assert "nothing was tried; estimated: 7 of 7 options" in page


def test_a_page_of_another_command_or_into_no_folder_is_refused(cli: Rocsteady) -> None:
    cli("plan", "--no-trials", "--yes", "--", "python3", "train.py")

    other = cli("plan", "--report", "d.md", "--", "python3", "other.py", "--api-key", "s3cr3t99x")
    nowhere = cli("plan", "--report", "none/d.md")

    assert (other.code, other.err.count("\n"), "s3cr3t99x" in other.err) == (2, 1, False)
    assert "the last plan is for another command (python3 train.py). Plan this" in other.err
    assert (nowhere.code, nowhere.err.count("\n")) == (2, 1)
    assert list(cli.folder.glob("d.*")) == []


def test_a_command_is_named_without_its_secrets(cli: Rocsteady) -> None:
    secrets = ("hf_abcdefghijklmnopqrstuvwxyz0123456789", "hunter2", "bob:pw")
    own = f"train.py --hf-token {secrets[0]} --password {secrets[1]} --url https://bob:pw@a.example"
    words = str(["python3", *own.split()]).replace("'", '"')
    (cli.folder / "rocsteady.toml").write_text(f'name = "x"\ncommand = {words}\n')

    first = cli("plan", "--no-trials", "--yes")
    other = cli("plan", "--no-trials", "--yes", "--", "python3", "other.py")
    refused = cli("run", "--plan", "1", "--yes", "--", "python3", "third.py")

    assert "rocsteady.toml is for another command (python3 train.py" in other.err
    assert (first.code, other.code, refused.code) == (0, 0, 2)
    for ended in (first, other, refused):
        assert not [secret for secret in secrets if secret in ended.out + ended.err], ended


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--report", "d.pdf"), "--report d.pdf: the name must end in .md or .html"),
        (("--report", ".md"), "the name must end in .md or .html, such as plan.md"),
        (("--report", "d.md", "--trial", "1s"), "--trial cannot be combined with --report"),
        (("--details", "1", "--within", "1s"), "--within cannot be combined with --details"),
        (("--details", "1", "--no-trials"), "--no-trials cannot be combined with --details"),
        (("--export", "slurm", "--trial", "1s"), "--trial cannot be combined with --export"),
        (("--no-trials", "--again"), "--again cannot be combined with --no-trials"),
        (("--details", "1", "--json"), "--json cannot be combined with"),
        (("--report", "d.md", "--details", "1"), "--report cannot be combined"),
        (("--report", "d.md", "--json"), "--report cannot be combined"),
        (("--report", "d.md", "--export", "slurm"), "--report cannot be combined"),
        (("--force",), "--force needs --export or --report"),
        (("--option", "1"), "--option needs --export"),
    ],
)
def test_what_does_not_go_together_is_said(
    cli: Rocsteady, words: tuple[str, ...], said: str
) -> None:
    ended = cli("plan", *words, "--", "python3", "train.py")

    assert (ended.code, said in ended.err, ended.err.count("\n")) == (2, True, 1)
    assert list(cli.folder.glob("d.*")) == []


def test_files_for_a_recorded_machine_need_no_plan_and_no_trial(cli: Rocsteady) -> None:
    windows = cli.machines / "rx9070xt-windows.json"
    made = cli("plan", "--root", windows, "--export", "wsl2", "--yes", "--", "python3", "train.py")

    assert made.code == 0, made
    guide = (cli.folder / "wsl2-guide.md").read_text()
    assert "AMD lists it for WSL" in guide
    assert "device-gfx1201" in guide


def test_a_recorded_machine_that_cannot_be_planned_is_said(cli: Rocsteady) -> None:
    (cli.folder / "not.json").write_text("{")
    pair, words = cli.machines / "rx7900xt-pair.json", ("--yes", "--", "python3", "train.py")

    missing = cli("plan", "--root", "none.json", *words)
    broken = cli("plan", "--root", "not.json", *words)
    for name, *value in (("--trial", "1s"), ("--within", "1m"), ("--again",)):
        tried = cli("plan", "--root", pair, name, *value, *words)
        assert (tried.code, tried.err.count("\n")) == (2, 1), tried
        assert f"{name} cannot be combined with --root, which makes no trials" in tried.err

    assert (missing.code, "none.json" in missing.err) == (2, True)
    assert (broken.code, broken.err.count("\n"), "not.json" in broken.err) == (3, 1, True)


@pytest.mark.slow
def test_trials_here_are_scaled_to_a_recorded_machine(project: Project) -> None:
    project.job(JOB, project.script(COUNTS))
    planned(project, "--trial", "2s", "--within", "20s")

    plan = planned(project, "--root", str(MACHINES / "rx7900xt-pair.json"))

    on_gpu = next(option for option in plan["options"] if option["id"] == "gpu")
    assert on_gpu["pace"]["low"] < on_gpu["pace"]["high"]
    assert any("from a trial without a GPU" in line for line in on_gpu["rests_on"])
    assert plan["take"].startswith("Best estimate: option ")


@pytest.mark.ci
@pytest.mark.slow
def test_a_script_without_torch_is_planned_and_run_by_what_it_prints(project: Project) -> None:
    project.script(COUNTS)
    project.job(JOB, "train.py")

    plan = planned(project, "--trial", "2s", "--within", "1m")
    first = plan["options"][0]
    ended = project.run("--plan", "1")

    assert first["id"].startswith("cpu")
    assert first["do"] == "rocsteady run --plan 1"
    assert first["pace"]["rate"] == pytest.approx(50, rel=0.4)
    assert first["finish"]["in_time"] == 1.0
    assert ended.code == 0, ended.err
    assert (project.folder / "model.bin").exists()


@pytest.mark.slow
def test_without_a_network_the_plan_is_the_same(project: Project) -> None:
    alone = ("unshare", "-rn")
    if shutil.which(alone[0]) is None or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("no network namespace can be made here")
    project.program = (*alone, *project.program)
    project.script(COUNTS)
    project.job(JOB, "train.py")

    plan = planned(project, "--trial", "2s", "--within", "1m")

    assert plan["recommended"] == 1
    assert plan["options"][0]["id"].startswith("cpu")
    assert [it["price"] for it in plan["ruled_out"] if it["id"].startswith("cloud")]  # dated


@pytest.mark.ci
@pytest.mark.slow
def test_variants_are_tried_where_a_tenth_of_the_job_allows_it(project: Project) -> None:
    project.script(COUNTS.replace("401", "40_001").replace("/400", "/40000"))
    project.job(JOB.replace("400", "40000"), "train.py")

    plan = planned(project, "--trial", "2s", "--within", "1m")

    variants = [option for option in plan["options"] if option["variant"]]
    assert [option["id"] for option in variants] == ["variant-small"]
    assert variants[0]["changes"] == "half the work"


@pytest.mark.slow
def test_a_torch_script_that_fails_under_a_variable_is_planned_without_it(
    project: Project, torch_python: str
) -> None:
    project.script(TRAINS.replace("BROKEN_SWITCH", "PYTORCH_NO_HIP_MEMORY_CACHING"))
    (project.folder / "rocsteady.toml").write_text(
        f'command = ["{torch_python}", "train.py"]\ntotal = {{ steps = 400 }}\ndeadline = "2h"\n'
    )
    project.environment["PYTORCH_NO_HIP_MEMORY_CACHING"] = "1"

    plan = planned(project, "--trial", "1s", "--within", "3m")
    ended = project.run("--plan", "1")

    first = plan["options"][0]
    assert first["strategy"]["variables"]["PYTORCH_NO_HIP_MEMORY_CACHING"] is None
    assert "blas" in plan["ruled_out"][0]["rests_on"][0]
    assert plan["limits"]
    assert ended.code == 0, ended.err
    assert (project.folder / "model.pt").exists()


@pytest.mark.slow
def test_an_interrupt_ends_it_and_leaves_nothing(project: Project) -> None:
    project.script(COUNTS.replace("401", "100_001"))  # half an hour: its trial is one of 20 s
    project.job(JOB.replace("400", "100_000"), "train.py")
    before = tree(project.folder)

    child = project.popen("plan", "--yes", "--trial", "20s")
    until(lambda: any(words.endswith("train.py ") for words in project.processes().values()))
    time.sleep(1)
    child.send_signal(signal.SIGINT)
    ended = project.ended(child)

    assert ended.code == 130
    assert "interrupted. No plan was made, and nothing in this folder was changed." in ended.said
    assert tree(project.folder) == before


@pytest.mark.slow
def test_trials_are_in_proportion_to_the_job(project: Project) -> None:
    project.script(COUNTS)  # 8 s
    project.job("total = { steps = 400 }", "train.py")

    plan = planned(project)

    assert plan["options"][0]["pace"]["rate"] == pytest.approx(50, rel=0.4)
    assert plan["trials"] == 1
    assert plan["options"][0]["pace"]["seconds"] < 4  # the rest is starting, on a busy machine


def test_the_command_that_is_offered_is_the_one_that_was_typed(cli: Rocsteady) -> None:
    root = ("--root", str(cli.machine("no-amd-gpu")))
    inner = type(cli)(cli.folder / "project")
    inner.folder.mkdir()
    inner.environment = cli.environment

    no_plan = inner("plan", "--details", "1")
    no_command = inner("plan", *root)
    (inner.folder / "rocsteady.toml").write_text('command = ["python3", "train.py"]\n')
    unread = inner("plan", *root, "--export", "slurm")

    assert "Type: rocsteady plan -- python train.py" in no_plan.err
    assert f"name a command: rocsteady plan {' '.join(root)} -- python train.py" in no_command.err
    assert f"allow it: rocsteady plan --yes {' '.join(root)} --export slurm" in unread.err


@pytest.mark.parametrize("kind", ["slurm", "kubernetes"])
def test_the_cpu_of_a_recorded_machine_needs_no_file(cli: Rocsteady, kind: str) -> None:
    words = ("--root", cli.machine("no-amd-gpu"), "--export", kind, "--option", "1", "--yes")
    ended = cli("plan", *words, "--", "python3", "train.py")

    assert ended.code == 2
    assert "Run it on that machine: rocsteady run -- python3 train.py\n" in ended.err


def test_a_file_says_which_option_it_is_for_and_what_speaks_against_it(cli: Rocsteady) -> None:
    (cli.folder / "rocsteady.toml").write_text('command = ["python3", "t.py"]\nbudget = 20\n')
    cli("plan", "--no-trials", "--yes")
    (kept,) = cli.folder.glob(".local/state/rocsteady/plans/*/plan.json")
    plan = json.loads(kept.read_text())
    four = {"gpus": [0, 1, 2, 3]}
    option = {"title": "cloud, 4 x Card", "basis": "estimate", "strategy": four, "cost": [1, 99]}
    plan["options"] = [{**option, "number": 1, "id": "cloud-x+4", "changes": "script: it is split"}]
    kept.write_text(json.dumps(plan))

    ended = cli("plan", "--export", "skypilot", "--yes")

    what = "option 1, cloud, 4 x Card; the script must be changed first: it is split; may exceed"
    assert ended.code == 0, ended
    assert f" for {what} the budget of $20.\n" in ended.out
    (task,) = cli.folder.glob("*.yaml")
    assert f"For {what}" in " ".join(task.read_text().replace("\n# ", " ").split())


def test_a_plan_whose_trial_failed_is_kept(cli: Rocsteady) -> None:
    inner = type(cli)(cli.folder / "project")
    inner.folder.mkdir()
    inner.environment = cli.environment
    (inner.folder / "train.py").write_text("raise ValueError('no')\n")
    inner("plan", "--no-trials", "--yes", "--", "python3", "train.py")
    (kept,) = cli.folder.rglob("plan.json")
    kept.write_text(kept.read_text().replace('"trials":0', '"trials":1'))

    ended = inner("plan", "--yes", "--", "python3", "train.py")

    assert "trial failed with" in ended.out
    assert "not kept" not in ended.out
    assert "trial failed with" in kept.read_text()
