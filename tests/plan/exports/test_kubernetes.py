"""Pods of several hosts are replaced together, and by exit code; the schemas accept the files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rocsteady.plan.exports.export import (
    Export,
    HostCount,
    ranks_per_host,
    torchrun_hosts,
    without_meeting,
)
from rocsteady.plan.exports.targets import TARGETS

SCHEMA = json.loads(Path(__file__).with_name("jobset_schema.json").read_text())
COMMANDS: dict[str, tuple[str, ...]] = {
    "plain": ("python", "train.py"),
    "one host": ("torchrun", "--nproc-per-node", "8", "train.py"),
    "hosts": ("torchrun", "--nnodes", "2:4", "--nproc-per-node", "8", "train.py"),
}


def manifest(export: Export) -> dict[str, Any]:
    (text,) = TARGETS["kubernetes"](export).values()
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


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
    ("code", "action"), [(75, "RestartJobSetAndIgnoreMaxRestarts"), (76, "FailJobSet")]
)
def test_an_exit_code_of_any_host_decides_for_all(
    an_export: Callable[..., Export], code: int, action: str
) -> None:
    spec = manifest(an_export(command=COMMANDS["hosts"]))["spec"]

    (job,) = spec["replicatedJobs"]
    policy = job["template"]["spec"]["podFailurePolicy"]["rules"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    on = policy[1]["onExitCodes"]
    assert policy[1]["action"] == "FailJob"
    assert code in on["values"]
    assert on["containerName"] == container["name"]
    message = (  # as the Job's controller writes it
        f"Container {container['name']} for pod default/es-futures-{code}-7675-x failed with"
        f" exit code {code} matching FailJob rule at index 1"
    )
    assert after(message, spec["failurePolicy"]["rules"]) == action


def test_hosts_meet_at_the_first_pod(an_export: Callable[..., Export]) -> None:
    (text,) = TARGETS["kubernetes"](an_export(command=COMMANDS["hosts"], gpus=8)).values()

    assert "parallelism: 4\n" in text
    assert "completions: 4\n" in text
    assert "export PET_RDZV_BACKEND=rocsteady\n" in text
    assert 'PET_RDZV_ENDPOINT="es-futures-hosts-0-0.es-futures:29500"\n' in text
    assert "exec torchrun --nnodes 2:4 --nproc-per-node 8 train.py\n" in text
    assert "terminationGracePeriodSeconds: 300 " in text  # to save
    assert "Every host must be able to write to it." in re.sub(r"\s+#? ?", " ", text)


def test_one_host_is_a_job(an_export: Callable[..., Export]) -> None:
    written = TARGETS["kubernetes"](an_export(command=COMMANDS["one host"], gpus=8))

    assert [*written] == ["es-futures-job.yaml"]
    (text,) = written.values()
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
