"""A TrainJob for Kubeflow Trainer, with the runtime that it refers to.

A TrainJob itself says nothing of failures: what to do at which exit code is in its runtime, which
is a template for a JobSet.
"""

from __future__ import annotations

from rocsteady.exports import kubernetes
from rocsteady.exports.export import Export, slug
from rocsteady.exports.file_header import of_schedulers, remarks
from rocsteady.exports.kubernetes import Table
from rocsteady.exports.torchrun_command import HostCount, torchrun_hosts

API = "trainer.kubeflow.org/v1alpha1"
CONTAINER = "node"  # Kubeflow's name for the one that trains, and for its Job
STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
PROGRESS = (
    "Where Kubeflow is set up for it (feature gate TrainJobStatus), rocsteady run reports progress"
    " and the remaining time; see kubectl describe trainjob."
)


def trainjob(export: Export) -> str:
    """Write both manifests."""
    image = kubernetes.image_here(export)
    name = slug(export.name)
    what = f"A TrainJob for Kubeflow Trainer 2 (kubectl apply -f {name}-trainjob.yaml)."
    sources = kubernetes.facts(image, "1.31 on; fields from Kubeflow Trainer 2.3.0 (2026-08-21)")
    head = [*remarks(export, what, sources), *of_schedulers(export)]
    head += [kubernetes.claim(export), kubernetes.CODES_OF_ALL]
    return kubernetes.as_text(
        [*head, PROGRESS], runtime_manifest(export, image.name), trainjob_manifest(export)
    )


def runtime_manifest(export: Export, image: str) -> Table:
    """Return the template: where pods get the project, and what follows when one fails."""
    name = slug(export.name)
    container = {"name": CONTAINER, "image": image, **kubernetes.surroundings()}
    pod = {**kubernetes.pod_parts(name), "containers": [container]}
    job = {**kubernetes.one_try(CONTAINER), "template": {"spec": pod}}
    template = {"metadata": {"labels": STEP}, "spec": job}
    return {
        "apiVersion": API,
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {
                "spec": {
                    "failurePolicy": kubernetes.restart_all(),
                    "replicatedJobs": [{"name": CONTAINER, "replicas": 1, "template": template}],
                }
            },
        },
    }


def trainjob_manifest(export: Export) -> Table:
    """Return the job: hosts, GPUs and the command. Kubeflow says where the hosts meet."""
    name = slug(export.name)
    hosts = torchrun_hosts(export.command) or HostCount(1, 1)
    return {
        "apiVersion": API,
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"kind": "TrainingRuntime", "name": name},
            "trainer": {
                "numNodes": hosts.most,
                "numProcPerNode": export.gpus,
                "resourcesPerNode": kubernetes.limits(export),
                "command": kubernetes.command(export, f"{name}-{CONTAINER}-0-0.{name}"),
            },
        },
    }
