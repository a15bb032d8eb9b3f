"""Every place that an option of the plan can be taken to. Not in this table, not written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocsteady.exports import container, kubernetes, skypilot, slurm, wsl2
from rocsteady.exports.export import Export, slug
from rocsteady.exports.torchrun_command import several_hosts

Files = dict[str, str]  # name of the file, in the project's folder: what is in it


def _container(export: Export) -> Files:
    return {
        container.DOCKERFILE: container.dockerfile(export),
        "run-in-container.sh": container.run_script(export),
    }


def _kubernetes(export: Export) -> Files:
    name = slug(export.name)
    if several_hosts(export.command):
        return {f"{name}-jobset.yaml": kubernetes.jobset(export)}
    return {f"{name}-job.yaml": kubernetes.job(export)}


PLACES: Mapping[str, Callable[[Export], Files]] = {
    "wsl2": lambda export: {"wsl2-guide.md": wsl2.guide(export)},
    "skypilot": lambda export: {f"{slug(export.name)}.yaml": skypilot.task(export)},
    "container": _container,
    "slurm": lambda export: {f"{slug(export.name)}.sbatch": slurm.sbatch(export)},
    "kubernetes": _kubernetes,
}
