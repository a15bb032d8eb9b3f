"""Every file says what was not confirmed; those who make their formats accept them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rocsteady.errors import RocsteadyError
from rocsteady.plan.exports.export import Export
from rocsteady.plan.exports.targets import TARGETS

HARD: dict[str, object] = {
    "command": ("python", "a b.py", "$(x)", "$HOME", "it's", "a\nb", "`id`", "*"),
    "requirements": "my [own] $requirements.txt",
    "variables": {"A": "x y", "B": "$HOME\n'"},
}
KINDS: dict[str, dict[str, object]] = {
    "plain": {"unset": (), "variables": {}, "requirements": "", "checkpoints": ()},
    "usual": {"setup": (30.0, 60.0), "deadline": "Sun 30 Nov 18:00", "notes": ("Mind the gap.",)},
    "hard": HARD,
    "bucket": {"infra": "kubernetes", "accelerator": "MI300X", "bucket": "s3://mine"},
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
}


def files(export: Export) -> dict[str, str]:
    return {name: text for write in TARGETS.values() for name, text in write(export).items()}


def dockerfile(export: Export) -> str:
    return TARGETS["container"](export)["rocsteady.Dockerfile"]


def run_script(export: Export) -> str:
    return TARGETS["container"](export)["run-in-container.sh"]


def manifest(export: Export) -> dict[str, Any]:
    (text,) = TARGETS["kubernetes"](export).values()
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
        assert "Mind the gap." in text
        assert "Due: Sun 30 Nov 18:00." in text


def test_a_gpu_without_an_image_gets_wheels_or_is_refused(an_export: Callable[..., Export]) -> None:
    text = dockerfile(an_export(gfx="gfx1010"))

    assert "FROM ubuntu:24.04\n" in text
    assert "'torch[device-gfx1010]'" in text
    assert "a build that exists may not work" in re.sub(r"\s+#? ?", " ", text)
    with pytest.raises(RocsteadyError, match="neither an image nor a wheel with code for gfx803"):
        dockerfile(an_export(gfx="gfx803"))
    with pytest.raises(RocsteadyError, match="no AMD image is known to have code for gfx1010"):
        TARGETS["kubernetes"](an_export(gfx="gfx1010"))


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


def test_a_pod_is_retried_on_75_and_not_on_76(an_export: Callable[..., Export]) -> None:
    spec = manifest(an_export(gpus=2))["spec"]

    rules = [
        (rule["action"], rule["onExitCodes"]["values"])
        for rule in spec["podFailurePolicy"]["rules"]
        if "onExitCodes" in rule
    ]
    assert rules == [("Ignore", [75]), ("FailJob", [76])]
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
