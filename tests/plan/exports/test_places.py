"""Every file says what was not confirmed; those who make their formats accept them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rocsteady.errors import RocsteadyError
from rocsteady.plan.exports.export import (
    Export,
    HostCount,
    image_for,
    known_places,
    pins,
    ranks_per_host,
    torchrun_hosts,
    without_meeting,
)
from rocsteady.plan.exports.targets import TARGETS

HARD: dict[str, object] = {
    "command": ("python", "a b.py", "$(x)", "$HOME", "it's", "a\nb", "`id`", "*"),
    "requirements": "my [own] $requirements.txt",
    "variables": {"A": "x y", "B": "$HOME\n'"},
}
KINDS: dict[str, dict[str, object]] = {
    "plain": {"unset": (), "variables": {}, "requirements": "", "checkpoints": ()},
    "usual": {"setup": (30.0, 60.0), "deadline": "Sun 30 Nov 18:00"},
    "hard": HARD,
}
HOSTS: dict[str, object] = {"command": ("torchrun", "--nnodes", "2", "a b.py", "$(x)", "it's")}
# An environment that is made by the file; a dollar in the user's command, which is meant as it is.
NO_MATTER = "SC1090,SC2016"
TYPED = "SC2164"  # cd by hand: who types it sees that it failed
NAMES = {
    "wsl2-guide.md",
    "es-futures.yaml",
    "rocsteady.Dockerfile",
    "run-in-container.sh",
    "es-futures.sbatch",
    "es-futures-job.yaml",
    "es-futures-claim.yaml",
}


def files(export: Export) -> dict[str, str]:
    return {name: text for write in TARGETS.values() for name, text in write(export).items()}


def dockerfile(export: Export) -> str:
    return TARGETS["container"](export)["rocsteady.Dockerfile"]


def run_script(export: Export) -> str:
    return TARGETS["container"](export)["run-in-container.sh"]


def manifest(export: Export) -> dict[str, Any]:
    text, _ = TARGETS["kubernetes"](export).values()
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_says_that_nothing_was_confirmed_and_of_what_day_it_is(
    an_export: Callable[..., Export], kind: str
) -> None:
    written = files(an_export(**KINDS[kind]))

    assert written.keys() == NAMES
    for text in written.values():
        head = re.sub(r"\s+#? ?", " ", text[:2000])
        assert "Not confirmed on hardware:" in head
        assert "Written by rocsteady on 2026-11-15." in head
        assert re.search(r"Facts: .*(2026|Slurm 22\.05)", head)
        assert text.endswith("\n")


def test_what_the_user_should_know_is_on_top(an_export: Callable[..., Export]) -> None:
    for text in files(an_export(**KINDS["usual"])).values():
        assert "about 30 to 60 minutes" in text
        assert "Due: Sun 30 Nov 18:00." in text


def test_a_gpu_without_an_image_gets_wheels_or_is_refused(an_export: Callable[..., Export]) -> None:
    text = dockerfile(an_export(gfx="gfx1010"))

    assert "FROM ubuntu:24.04\n" in text
    assert "pip install --pre --index-url" in text
    assert "'torch[device-gfx1010]'" in text
    assert "a build that exists may not work" in re.sub(r"\s+#? ?", " ", text)
    with pytest.raises(RocsteadyError, match="neither an image nor a wheel with code for gfx803"):
        dockerfile(an_export(gfx="gfx803"))
    with pytest.raises(RocsteadyError, match="no AMD image is known to have code for gfx1010"):
        TARGETS["kubernetes"](an_export(gfx="gfx1010"))
    with pytest.raises(RocsteadyError, match="AMD's wheel: rocsteady plan --export container"):
        TARGETS["slurm"](an_export(gfx="gfx1010"))


def test_a_path_in_a_dockerfile_is_taken_as_it_is(an_export: Callable[..., Export]) -> None:
    text = dockerfile(an_export(requirements="""my [own] $it's.txt"""))

    copies = re.findall(r"^COPY (.*)$", text, re.MULTILINE)
    source, target = json.loads(copies[0])
    assert source == r"my [[]own] \$it\'s.txt"  # nothing filled in, no pattern, no quote
    assert target in text.split("RUN ")[1]


def test_a_container_gets_devices_groups_by_number_and_shared_memory(
    an_export: Callable[..., Export],
) -> None:
    text = run_script(an_export())

    for option in ("--device /dev/kfd", "--device /dev/dri", "--ipc host", "--cap-add SYS_PTRACE"):
        assert option in text
    assert '--group-add "$(stat --format %g "$device")"' in text
    assert "--security-opt seccomp=unconfined" in text


def after_pod(code: int, rules: list[dict[str, Any]]) -> str:
    """Choose as the Job's controller does: the first rule that fits, else it is counted."""
    for rule in rules:
        on = rule.get("onExitCodes")
        if on and (code in on["values"]) == (on["operator"] == "In"):
            return str(rule["action"])
    return "Count"


def test_a_pod_is_retried_only_where_that_can_help(an_export: Callable[..., Export]) -> None:
    spec = manifest(an_export(gpus=2))["spec"]

    rules = spec["podFailurePolicy"]["rules"]
    assert after_pod(75, rules) == "Ignore"
    assert {after_pod(code, rules) for code in (1, 2, 76)} == {"FailJob"}
    assert {after_pod(code, rules) for code in (137, 143)} == {"Count"}  # killed from outside
    assert rules[0]["onPodConditions"][0]["type"] == "DisruptionTarget"
    (pod,) = spec["template"]["spec"]["containers"]
    assert pod["resources"] == {"limits": {"amd.com/gpu": 2}}
    assert spec["template"]["spec"]["volumes"][1]["emptyDir"]["medium"] == "Memory"


@pytest.fixture(scope="module")
def every_file(an_export: Callable[..., Export], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the files of every kind, and each script that stands in one of them."""
    folder = tmp_path_factory.mktemp("exports")
    for kind, other in KINDS.items():
        export = an_export(**other)
        written = files(export) | _scripts(export)
        written |= _jobs_of_hosts(an_export(**(other | HOSTS)))
        written["of-wheels.Dockerfile"] = dockerfile(an_export(gfx="gfx1010", **other))
        for name, text in written.items():
            (folder / f"{kind}-{name}").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "arguments", "pattern"),
    [
        ("shellcheck", ("--shell=bash", f"--exclude={NO_MATTER}"), "*.s[bh]*"),
        ("shellcheck", ("--shell=bash", f"--exclude={NO_MATTER},{TYPED}"), "*.typed"),
        ("hadolint", ("--no-color",), "*Dockerfile"),
        ("kubernetes-validate", ("--quiet", "--strict", "-k", "1.31"), "*-job.yaml"),
        ("kubernetes-validate", ("--quiet", "--strict", "-k", "1.37"), "*-job.yaml"),
    ],
)
def test_a_linter_finds_nothing(
    every_file: Path, tools: Path, tool: str, arguments: tuple[str, ...], pattern: str
) -> None:
    found = sorted(map(str, every_file.glob(pattern)))

    done = subprocess.run(
        [str(tools / tool), *arguments, *found], check=False, capture_output=True, text=True
    )

    assert len(found) >= len(KINDS)
    assert done.returncode == 0, f"{tool}: {done.stdout}{done.stderr}"


def _jobs_of_hosts(export: Export) -> dict[str, str]:
    """Return the file for Slurm, and the Job inside a JobSet as a Job of its own."""
    (inside,) = manifest(export)["spec"]["replicatedJobs"]
    spec = inside["template"]["spec"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hosts"}, "spec": spec}
    (text,) = TARGETS["slurm"](export).values()
    return {
        "hosts.sbatch": text,
        "hosts-job.yaml": yaml.safe_dump(job),
        "hosts-pod.sh": _pod_script(spec),
    }


def _pod_script(spec: dict[str, Any]) -> str:
    (pod,) = spec["template"]["spec"]["containers"]
    return str(pod["command"][2]).replace("$$", "$")


def _scripts(export: Export) -> dict[str, str]:
    """Return the scripts that stand in YAML and in Markdown."""
    (task,) = TARGETS["skypilot"](export).values()
    table = yaml.safe_load(task)
    guide = TARGETS["wsl2"](export)["wsl2-guide.md"]
    typed = re.findall(r"^(`{3,})bash\n(.*?)^\1$", guide, re.DOTALL | re.MULTILINE)
    return {
        "setup.sh": table["setup"],
        "run.sh": table["run"],
        "pod.sh": _pod_script(manifest(export)["spec"]),
        **{f"{number}.typed": code for number, (_, code) in enumerate(typed)},
    }


SCHEMA = json.loads(Path(__file__).with_name("jobset_schema.json").read_text())
COMMANDS: dict[str, tuple[str, ...]] = {
    "plain": ("python", "train.py"),
    "one host": ("torchrun", "--nproc-per-node", "8", "train.py"),
    "hosts": ("torchrun", "--nnodes", "2:4", "--nproc-per-node", "8", "train.py"),
}


def test_a_jobset_has_only_fields_that_its_schema_has(an_export: Callable[..., Export]) -> None:
    jsonschema.validate(manifest(an_export(command=COMMANDS["hosts"])), SCHEMA)


def test_the_schema_knows_one_that_is_wrong(an_export: Callable[..., Export]) -> None:
    jobset = manifest(an_export(command=COMMANDS["hosts"]))
    jobset["spec"]["failurePolicies"] = {}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(jobset, SCHEMA)


def after(message: str, rules: list[dict[str, Any]]) -> str:
    """Choose as the JobSet's controller does: the first rule that fits, else a counted restart."""
    for rule in rules:
        patterns = rule.get("onJobFailureMessagePatterns", [""])
        if any(re.search(pattern, message) for pattern in patterns):
            return str(rule["action"])
    return "RestartJobSet"


@pytest.mark.parametrize(
    ("code", "action"),
    [(75, "RestartJobSetAndIgnoreMaxRestarts"), (76, "FailJobSet"), (1, "FailJobSet")],
)
def test_an_exit_code_of_any_host_decides_for_all(
    an_export: Callable[..., Export], code: int, action: str
) -> None:
    spec = manifest(an_export(command=COMMANDS["hosts"]))["spec"]

    (job,) = spec["replicatedJobs"]
    policy = job["template"]["spec"]["podFailurePolicy"]["rules"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    assert after_pod(code, policy) == "FailJob"
    assert after_pod(137, policy) == "Count"  # which the JobSet counts, too
    assert policy[1]["onExitCodes"]["containerName"] == container["name"]
    message = (  # as the Job's controller writes it
        f"Container {container['name']} for pod default/es-futures-{code}-7675-x failed with"
        f" exit code {code} matching FailJob rule at index 1"
    )
    assert after(message, spec["failurePolicy"]["rules"]) == action
    moved = (
        "Pod default/es-futures-x has condition DisruptionTarget matching FailJob rule at index 0"
    )
    assert after(moved, spec["failurePolicy"]["rules"]) == "RestartJobSetAndIgnoreMaxRestarts"


def test_hosts_meet_at_the_first_pod(an_export: Callable[..., Export]) -> None:
    text, claim = TARGETS["kubernetes"](an_export(command=COMMANDS["hosts"], gpus=8)).values()

    assert "ReadWriteMany" in claim

    assert "parallelism: 4\n" in text
    assert "completions: 4\n" in text
    assert "export PET_RDZV_BACKEND=rocsteady\n" in text
    assert 'PET_RDZV_ENDPOINT="es-futures-hosts-0-0.es-futures:29500"\n' in text
    assert "exec torchrun --nnodes 2:4 --nproc-per-node 8 train.py\n" in text
    assert "terminationGracePeriodSeconds: 300 " in text  # to save
    assert "Every host must be able to write to it." in re.sub(r"\s+#? ?", " ", text)


def test_one_host_is_a_job(an_export: Callable[..., Export]) -> None:
    written = TARGETS["kubernetes"](an_export(command=COMMANDS["one host"], gpus=8))

    assert [*written] == ["es-futures-job.yaml", "es-futures-claim.yaml"]
    text = written["es-futures-job.yaml"]
    assert "export PET_RDZV_BACKEND=rocsteady\n" in text
    assert (
        "exec rocsteady run --yes --resume auto -- torchrun --nproc-per-node 8 train.py\n" in text
    )


@pytest.mark.parametrize(
    ("command", "hosts", "ranks", "elsewhere"),
    [
        ("python train.py --nnodes 2", None, None, None),
        ("torchrun train.py", (1, 1), None, None),
        ("torchrun --standalone --nproc-per-node=gpu t.py", (1, 1), None, None),
        (
            "torchrun --standalone --nnodes 3 t.py --standalone",
            (3, 3),
            None,
            "--nnodes 3 t.py --standalone",
        ),
        ("/x/torchrun --master_addr a --nnodes=2 -m pkg.t", (2, 2), None, "--nnodes=2 -m pkg.t"),
        ("torchrun --nnodes 2 --local-addr 10.0.0.1 t.py", (2, 2), None, "--nnodes 2 t.py"),
        ("python3.12 -m torch.distributed.run --nnodes 1:2 t.py", (1, 2), None, None),
        ("torchrun --nproc_per_node 4 --nnodes $N t.py", (1, 1), 4, None),
        ("torchrun --nnodes 4 --nproc-per-node=1 --nnodes 2 --nproc_per_node 8 t", (2, 2), 8, None),
    ],
)
def test_what_a_launcher_says(
    command: str, hosts: tuple[int, int] | None, ranks: int | None, elsewhere: str | None
) -> None:
    words = tuple(command.split())

    assert torchrun_hosts(words) == (HostCount(*hosts) if hosts else None)
    assert ranks_per_host(words) == ranks
    left = " ".join(without_meeting(words))
    assert left.partition(" ")[2] == elsewhere if elsewhere else left == command


EXIST = {  # in PowerShell of Windows 11, in Ubuntu 24.04, or installed by the guide
    "powershell": {"wsl"},
    "bash": {
        ".",
        "cd",
        "cp",
        "export",
        "explorer.exe",
        "grep",
        "ldconfig",
        "ls",
        "mkdir",
        "python3",
        "rocsteady",
        "sudo",
        "unset",
        "wget",
    },
}
WITH_SUDO = {"apt-get", "ldconfig"}


def guide(export: Export) -> str:
    return TARGETS["wsl2"](export)["wsl2-guide.md"]


def blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("gfx", known_places().wsl)
def test_every_command_exists(an_export: Callable[..., Export], gfx: str) -> None:
    found = blocks(guide(an_export(gfx=gfx, gpu=f"AMD Radeon {known_places().wsl[gfx][0]}")))

    assert [language for language, _ in found] == ["powershell", *["bash"] * 5]
    for language, code in found:
        for part in re.split(r"\n| \| ", code.strip()):
            first, second, *_ = [*shlex.split(part), ""]
            assert first in EXIST[language], part
            assert first != "sudo" or second in WITH_SUDO, part


def test_the_wheel_is_the_one_for_the_gpu(an_export: Callable[..., Export]) -> None:
    text = guide(an_export(gfx="gfx1201", gpu="AMD Radeon RX 9070 XT"))

    assert "'torch[device-gfx1201]==2.12.0+rocm7.14.1'" in text
    assert "AMD lists it for WSL" in text
    assert "rocsteady doctor" in text


@pytest.mark.parametrize(
    ("gfx", "gpu", "says"),
    [
        ("gfx1101", "AMD Radeon RX 7800 XT", "AMD lists it for WSL"),
        ("gfx1101", "AMD Radeon RX 7700 XT", "It does not name AMD Radeon RX 7700 XT"),
        ("gfx1101", "AMD Radeon RX 7700 XT", "microsoft/WSL#40464"),
        ("gfx1200", "AMD Radeon RX 9060 XT", "librocdxg#22"),
    ],
)
def test_it_says_what_amd_names_and_what_users_report(
    an_export: Callable[..., Export], gfx: str, gpu: str, says: str
) -> None:
    assert says in guide(an_export(gfx=gfx, gpu=gpu))


@pytest.mark.parametrize("gfx", ["gfx1010", "gfx1030", "gfx1102", ""])
def test_a_gpu_that_amd_does_not_list_gets_no_steps(
    an_export: Callable[..., Export], gfx: str
) -> None:
    text = guide(an_export(gfx=gfx, gpu="another"))

    assert "AMD does not list" in text
    assert blocks(text) == []


def test_names_and_paths_are_no_markup(an_export: Callable[..., Export]) -> None:
    text = guide(an_export(checkpoints=("a_b/*.pt", "c\n# d`"), gpu="<b>", torch="2.8.0_x"))

    assert r"a\_b/\*.pt, c\x0a# d\`" in text
    assert r"\<b\>" in text
    assert r"(here it is 2.8.0\_x)" in text


@pytest.mark.parametrize(
    ("gfx", "torch", "chosen"),
    [
        ("gfx1100", "2.8.0+rocm6.4", "2.8.0"),
        ("gfx1100", "2.9.0", "2.9.1"),
        ("gfx1100", "2.5.1+rocm6.2", "2.7.1"),  # the next one that there is
        ("gfx1100", "2.10.0", "2.11.0"),  # 2.10 is named for Instinct only
        ("gfx942", "2.10.0", "2.10.0"),
        ("gfx1151", "2.8.0", "2.11.0"),  # not in the images of 7.2
        ("gfx1201", "2.15.0", "2.14.0"),  # none is as new
        ("gfx1201", "", "2.14.0"),
        ("gfx1201", "a nightly", "2.14.0"),
        ("", "2.12.0", "2.12.0"),
    ],
)
def test_the_image_has_the_same_torch_or_the_next(gfx: str, torch: str, chosen: str) -> None:
    image = image_for(gfx, torch)

    assert image is not None
    assert image.torch == chosen


def test_of_two_images_with_the_same_torch_it_is_the_newer_rocm() -> None:
    """10.1 has the repair of page faults in training on gfx1201; gfx908 is in that of 10.0 only."""
    images = image_for("gfx1201", "2.13.0"), image_for("gfx908", "2.13.0")

    assert [image and image.rocm for image in images] == ["10.1.0", "10.0"]


def test_there_is_no_image_for_an_rx_5700_but_there_are_wheels() -> None:
    assert image_for("gfx1010", "2.5.1") is None
    assert "gfx1010" in known_places().wheels_for
    assert "gfx803" not in known_places().wheels_for


def test_what_can_be_rented_has_an_image() -> None:
    assert all(image_for(gfx) for gfx in known_places().accelerators.values())


def install(site: Path, name: str, version: str, *files: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_a_script_is_pinned_to_what_is_installed(tmp_path: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "job"
    install(site, "numpy", "2.4.6", "numpy/__init__.py")
    install(site, "scikit-learn", "1.9.0", "sklearn/__init__.py")
    install(site, "torch", "2.13.0+cpu", "torch/__init__.py")
    install(site, "other", "1.0", "other.py")
    folder.mkdir()
    (folder / "train.py").write_text(
        "import json, numpy as np, torch, data\nfrom sklearn.svm import SVC\nfrom . import other\n"
    )
    (folder / "data.py").write_text("import torch.nn\n")
    (folder / "old.py").write_text("print 'of another Python'\n")
    os.mkfifo(folder / "pipe.py")

    assert pins(folder, [str(site)]) == "numpy==2.4.6\nscikit-learn==1.9.0\n"


def test_nothing_to_pin_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")

    assert not pins(tmp_path, [])
