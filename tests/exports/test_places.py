"""Every file says what was not confirmed; those who make their formats accept them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocsteady.errors import RocsteadyError
from rocsteady.exports import container, kubernetes, skypilot, slurm, wsl2
from rocsteady.exports.catalog import PLACES
from rocsteady.exports.export import Export
from rocsteady.exports.yaml_text import as_yaml

HERE = Path(__file__).parent
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
    return {name: text for write in PLACES.values() for name, text in write(export).items()}


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


def test_a_gpu_without_an_image_gets_wheels_or_is_refused(
    an_export: Callable[..., Export],
) -> None:
    text = container.dockerfile(an_export(gfx="gfx1010"))

    assert "FROM ubuntu:24.04\n" in text
    assert "'torch[device-gfx1010]'" in text
    assert "a build that exists may not work" in re.sub(r"\s+#? ?", " ", text)
    with pytest.raises(RocsteadyError, match="neither an image nor a wheel with code for gfx803"):
        container.dockerfile(an_export(gfx="gfx803"))
    with pytest.raises(RocsteadyError, match="no AMD image is known to have code for gfx1010"):
        kubernetes.job(an_export(gfx="gfx1010"))


def test_a_path_in_a_dockerfile_is_taken_as_it_is(an_export: Callable[..., Export]) -> None:
    text = container.dockerfile(an_export(requirements="""my [own] $it's.txt"""))

    copies = re.findall(r"^COPY (.*)$", text, re.MULTILINE)
    source, target = json.loads(copies[0])
    assert source == r"my [[]own] \$it\'s.txt"  # nothing filled in, no pattern, no quote
    assert target in text.split("RUN ")[1]


def test_a_container_gets_devices_groups_by_number_and_shared_memory(
    an_export: Callable[..., Export],
) -> None:
    text = container.run_script(an_export())

    for option in ("--device /dev/kfd", "--device /dev/dri", "--ipc host", "--cap-add SYS_PTRACE"):
        assert option in text
    assert '--group-add "$(stat --format %g "$device")"' in text
    assert "--security-opt seccomp=unconfined" in text


def test_a_pod_is_retried_on_75_and_not_on_76(an_export: Callable[..., Export]) -> None:
    text = kubernetes.job(an_export(gpus=2))

    rules = re.findall(r'action: "(\w+)"\n +onExitCodes:.*?values:\n +- (\d+)', text, re.DOTALL)
    assert rules == [("Ignore", "75"), ("FailJob", "76")]
    assert "amd.com/gpu: 2\n" in text
    assert 'medium: "Memory"' in text


@pytest.fixture(scope="module")
def every_file(an_export: Callable[..., Export], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the files of every kind, and each script that stands in one of them."""
    folder = tmp_path_factory.mktemp("exports")
    for kind, other in KINDS.items():
        export = an_export(**other)
        written = files(export) | _scripts(export)
        written |= _jobs_of_hosts(an_export(**(other | HOSTS)))
        written["of-wheels.Dockerfile"] = container.dockerfile(an_export(gfx="gfx1010", **other))
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
    (inside,) = cast("Any", kubernetes.jobset_manifest(export, "image"))["spec"]["replicatedJobs"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hosts"}}
    return {
        "hosts.sbatch": slurm.sbatch(export),
        "hosts-job.yaml": as_yaml({**job, "spec": inside["template"]["spec"]}),
        "hosts-pod.sh": kubernetes._script(export, "first.host"),
    }


def _scripts(export: Export) -> dict[str, str]:
    """Return the scripts that stand in YAML and in Markdown."""
    table = skypilot._table(export, skypilot._image(export))
    typed = re.findall(r"^(`{3,})bash\n(.*?)^\1$", wsl2.guide(export), re.DOTALL | re.MULTILINE)
    return {
        "setup.sh": str(table["setup"]),
        "run.sh": str(table["run"]),
        "pod.sh": kubernetes._script(export),
        **{f"{number}.typed": code for number, (_, code) in enumerate(typed)},
    }


@pytest.mark.slow
def test_yaml_is_read_back_as_it_was_meant(
    tools: Path, hard_commands: st.SearchStrategy[tuple[str, ...]]
) -> None:
    texts = hard_commands.map("\n".join)
    leaves = st.one_of(texts, st.integers(), st.booleans(), st.sampled_from([0.9, 12.5]))
    values = st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)
        ),
        max_leaves=8,
    )
    cases: list[str] = []

    @settings(
        max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(
        st.dictionaries(
            st.one_of(st.sampled_from(["on", "a.b/c", "no"]), texts), values, min_size=1
        )
    )
    def collect(table: dict[str, object]) -> None:
        cases.append(json.dumps({"text": as_yaml(table), "value": table}))

    collect()
    done = subprocess.run(
        [str(tools / "python"), str(HERE / "check_yaml.py")],
        input="\n".join(cases),
        check=False,
        capture_output=True,
        text=True,
    )

    assert len(cases) >= 150
    assert done.returncode == 0, done.stderr
