"""A Job for Kubernetes on nodes with AMD's device plugin; for several hosts, a JobSet."""

from __future__ import annotations

import re

from rocsteady.errors import RocsteadyError
from rocsteady.exit_codes import PERSON_NEEDED, RETRY
from rocsteady.exports.export import Export, slug
from rocsteady.exports.file_header import comments, of_schedulers, remarks
from rocsteady.exports.images import AS_OF, Image, image_for
from rocsteady.exports.shell import environment, install, job_line, rendezvous
from rocsteady.exports.torchrun_command import several_hosts, torchrun_hosts
from rocsteady.exports.yaml_text import as_yaml

PROJECT = "/project"
SHARED_MEMORY = "8Gi"  # what AMD's own docker line gives; loaders hand over batches there
TRIES = 3  # for ends that are neither 75 nor 76
CONTAINER = "train"
HOSTS = "hosts"  # the JobSet's name for the Job with a pod for each host
TO_SAVE = 300  # seconds between the request to end a pod and its end
Table = dict[str, object]
CODES = (
    "Exit code 75 can be retried automatically: the pod is replaced and not counted as a"
    " failure. 76 needs a person and ends the Job."
)
CODES_OF_ALL = (
    "Exit code 75 on any host can be retried automatically: all pods are replaced, and that is"
    " not counted. 76 needs a person and ends the job."
)


def job(export: Export) -> str:
    """Write the manifest for one host."""
    image = image_here(export)
    name = slug(export.name)
    what = f"A Job for Kubernetes (kubectl apply -f {name}-job.yaml)."
    head = remarks(export, what, facts(image, "1.31 on without a feature gate"))
    head += [*of_schedulers(export), claim(export), CODES]
    return as_text(head, _manifest(export, image.name))


def jobset(export: Export) -> str:
    """Write the manifest for several hosts."""
    image = image_here(export)
    name = slug(export.name)
    what = f"A JobSet for Kubernetes (kubectl apply -f {name}-jobset.yaml). It needs JobSet 0.10."
    sources = facts(image, "1.31 on; JobSet fields from its schema of 2026-08-18")
    head = [*remarks(export, what, sources), *of_schedulers(export), claim(export), CODES_OF_ALL]
    return as_text(head, jobset_manifest(export, image.name))


def as_text(head: list[str], *manifests: Table) -> str:
    """Write the remarks and the manifests."""
    return "\n".join(comments(head)) + "\n" + "---\n".join(map(as_yaml, manifests))


def facts(image: Image, policies: str) -> str:
    """Return what a file rests on."""
    return (
        f"image as of {AS_OF} from {image.source}; amd.com/gpu from ROCm/k8s-device-plugin;"
        f" podFailurePolicy from Kubernetes {policies}."
    )


def claim(export: Export) -> str:
    """Say what must be there."""
    shared = " Every host must be able to write to it." if several_hosts(export.command) else ""
    return (
        f"The volume claim {slug(export.name)} must exist and hold the project with rocsteady.toml"
        f" and, as {export.rocsteady}, a checkout of rocsteady. It keeps checkpoints between"
        f" pods.{shared}"
    )


def image_here(export: Export) -> Image:
    """Return the image for the GPU."""
    image = image_for(export.gfx, export.torch)
    if image is None:
        raise RocsteadyError(f"no AMD image is known to have code for {export.gfx}")
    return image


def jobset_manifest(export: Export, image: str) -> Table:
    """Return a JobSet: a Job with a pod for each host, all of which are replaced together."""
    name = slug(export.name)
    hosts = torchrun_hosts(export.command)
    number = hosts.most if hosts else 1
    job_of_all = {
        "parallelism": number,
        "completions": number,
        **one_try(CONTAINER),
        "template": {"spec": _pod(export, image, name)},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": restart_all(),
            "replicatedJobs": [{"name": HOSTS, "replicas": 1, "template": {"spec": job_of_all}}],
        },
    }


def restart_all() -> Table:
    """Return what a JobSet does when its Job failed; the Job's message has the exit code."""

    def rule(name: str, action: str, **more: object) -> Table:
        return {"name": name, "action": action, "onJobFailureReasons": ["PodFailurePolicy"], **more}

    code = f"failed with exit code {PERSON_NEEDED} "
    return {
        "maxRestarts": TRIES,
        "restartStrategy": "BlockingRecreate",  # no two generations write the same checkpoints
        "rules": [
            rule("personNeeded", "FailJobSet", onJobFailureMessagePatterns=[code]),
            rule("retry", "RestartJobSetAndIgnoreMaxRestarts"),
        ],
    }


def one_try(container: str) -> Table:
    """Return the policy of a Job that ends with its first pod that fails; the JobSet goes on."""
    codes = {"containerName": container, "operator": "In", "values": [RETRY, PERSON_NEEDED]}
    rules: list[Table] = [_evicted("FailJob"), {"action": "FailJob", "onExitCodes": codes}]
    return {"backoffLimit": 0, "podFailurePolicy": {"rules": rules}}


def _manifest(export: Export, image: str) -> Table:
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


def _rules() -> list[Table]:
    def on(code: int, action: str) -> Table:
        codes = {"containerName": CONTAINER, "operator": "In", "values": [code]}
        return {"action": action, "onExitCodes": codes}

    return [_evicted("Ignore"), on(RETRY, "Ignore"), on(PERSON_NEEDED, "FailJob")]


def _evicted(action: str) -> Table:
    return {
        "action": action,
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }


def _pod(export: Export, image: str, name: str) -> Table:
    container = {
        "name": CONTAINER,
        "image": image,
        "command": command(export, f"{name}-{HOSTS}-0-0.{name}"),
        "resources": limits(export),
        **surroundings(),
    }
    return {**pod_parts(name), "containers": [container]}


def limits(export: Export) -> Table:
    """Return the GPUs of a pod."""
    return {"limits": {"amd.com/gpu": export.gpus}}


def surroundings() -> Table:
    """Return what the container needs beside its image, its command and its GPUs."""
    return {
        "workingDir": PROJECT,
        "env": [{"name": "PIP_BREAK_SYSTEM_PACKAGES", "value": "1"}],
        "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},  # stacks of a hang
        "volumeMounts": [
            {"name": "project", "mountPath": PROJECT},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the pod's own
        ],
    }


def pod_parts(name: str) -> Table:
    """Return what a pod needs beside its container."""
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": TO_SAVE,
        "volumes": [
            {"name": "project", "persistentVolumeClaim": {"claimName": name}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}},
        ],
    }


def command(export: Export, first_host: str) -> list[str]:
    """Return what the container does."""
    return ["bash", "-c", unexpanded(_script(export, first_host))]


def _script(export: Export, first_host: str = "") -> str:
    meet = rendezvous(export, first_host, slug(export.name))
    lines = ["set -e", *install(export), *environment(export), *meet, f"exec {job_line(export)}"]
    return "".join(f"{line}\n" for line in lines)


def unexpanded(text: str) -> str:
    """Keep Kubernetes from filling in $(NAME): there $$ stands for one $."""
    return re.sub(r"\$(?=[$(])", "$$", text)
