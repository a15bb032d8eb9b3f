"""A Job for Kubernetes on nodes with AMD's device plugin."""

from __future__ import annotations

import re

from rocsteady.errors import RocsteadyError
from rocsteady.exports.export import Export, slug
from rocsteady.exports.images import AS_OF, image_for
from rocsteady.exports.remarks import comments, remarks
from rocsteady.exports.shell import environment, install, run_line
from rocsteady.exports.yaml_text import as_yaml

PROJECT = "/project"
SHARED_MEMORY = "8Gi"  # what AMD's own docker line gives; loaders hand over batches there
TRIES = 3  # for ends that are neither 75 nor 76
CONTAINER = "train"
CODES = (
    "Exit code 75 can be retried automatically: the pod is replaced and not counted as a"
    " failure. 76 needs a person and ends the Job."
)


def job(export: Export) -> str:
    """Write the manifest."""
    image = image_for(export.gfx, export.torch)
    if image is None:
        raise RocsteadyError(f"no AMD image is known to have code for {export.gfx}")
    name = slug(export.name)
    facts = (
        f"image as of {AS_OF} from {image.source}; amd.com/gpu from ROCm/k8s-device-plugin;"
        " podFailurePolicy from Kubernetes 1.31 on without a feature gate."
    )
    claim = (
        f"The volume claim {name} must exist and hold the project with rocsteady.toml and, as"
        f" {export.rocsteady}, a checkout of rocsteady. It keeps checkpoints between pods."
    )
    what = f"A Job for Kubernetes (kubectl apply -f {name}-job.yaml)."
    head = [*remarks(export, what, facts), claim, CODES]
    return "\n".join(comments(head)) + "\n" + as_yaml(_manifest(export, image.name))


def _manifest(export: Export, image: str) -> dict[str, object]:
    name = slug(export.name)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": TRIES,
            "podFailurePolicy": {"rules": _rules()},
            "template": {"spec": _pod(export, image, name)},
        },
    }


def _rules() -> list[dict[str, object]]:
    def on(code: int, action: str) -> dict[str, object]:
        codes = {"containerName": CONTAINER, "operator": "In", "values": [code]}
        return {"action": action, "onExitCodes": codes}

    evicted: dict[str, object] = {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    return [evicted, on(75, "Ignore"), on(76, "FailJob")]


def _pod(export: Export, image: str, name: str) -> dict[str, object]:
    mounts = [
        {"name": "project", "mountPath": PROJECT},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the pod's own
    ]
    container = {
        "name": CONTAINER,
        "image": image,
        "workingDir": PROJECT,
        "command": ["bash", "-c", unexpanded(_script(export))],
        "env": [{"name": "PIP_BREAK_SYSTEM_PACKAGES", "value": "1"}],
        "resources": {"limits": {"amd.com/gpu": export.gpus}},
        "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},  # stacks of a hang
        "volumeMounts": mounts,
    }
    volumes = [
        {"name": "project", "persistentVolumeClaim": {"claimName": name}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}},
    ]
    return {"restartPolicy": "Never", "containers": [container], "volumes": volumes}


def _script(export: Export) -> str:
    lines = ["set -e", *install(export), *environment(export), f"exec {run_line(export)}"]
    return "".join(f"{line}\n" for line in lines)


def unexpanded(text: str) -> str:
    """Keep Kubernetes from filling in $(NAME): there $$ stands for one $."""
    return re.sub(r"\$(?=[$(])", "$$", text)
