"""An image for this job, and the line that runs it with the GPUs of the machine."""

from __future__ import annotations

import json
import re
import shlex

from msgspec.structs import replace

from rocsteady.errors import RocsteadyError
from rocsteady.exports.export import Export, slug
from rocsteady.exports.file_header import comments, remarks
from rocsteady.exports.images import AS_OF, NAMES_WHEELS, WHEELS, WHEELS_FOR, image_for
from rocsteady.exports.shell import command_elsewhere, install

DOCKERFILE = "rocsteady.Dockerfile"
PROJECT = "/project"
UBUNTU = "ubuntu:24.04"
ROCSTEADY_AT = "/opt/rocsteady"
REQUIREMENTS_AT = "/tmp/requirements.txt"  # noqa: S108 - in the image
CHECK = (
    "Before the first run, replace the command at the end with `rocsteady doctor` to check"
    " whether this torch has code for the GPU."
)
RUN = """\
set -eu
cd "$(dirname "$0")"
docker build --file {dockerfile} --tag {tag} .

options=()
for device in /dev/kfd /dev/dri/renderD*; do
    # By number: a name may stand for another group in the image.
    options+=(--group-add "$(stat --format %g "$device")")
done
if [ -t 0 ] && [ -t 1 ]; then
    options+=(--interactive --tty)
fi
exec docker run --rm --init "${{options[@]}}" \\
    --device /dev/kfd --device /dev/dri \\
    --ipc host \\
    --cap-add SYS_PTRACE --security-opt seccomp=unconfined \\
    --volume "$PWD:{project}" --workdir {project} \\
{more}    {tag} {command}
"""


def dockerfile(export: Export) -> str:
    """Write what the image is built from."""
    image = image_for(export.gfx, export.torch)
    if image is not None:
        facts = f"image as of {AS_OF} from {image.source}."
        base = [
            *comments(
                [f"torch {image.torch}, ROCm {image.rocm}{_other_torch(export, image.torch)}"]
            ),
            f"FROM {image.name}",
            "ENV PIP_BREAK_SYSTEM_PACKAGES=1 PIP_NO_CACHE_DIR=1",
        ]
    elif export.gfx in WHEELS_FOR:
        facts = (
            f"wheels for {export.gfx} as of {AS_OF} from {NAMES_WHEELS}. They are nightly"
            " builds; a build that exists may not work."
        )
        base = _from_wheels(export)
    else:
        raise RocsteadyError(f"AMD names neither an image nor a wheel with code for {export.gfx}")
    head = remarks(export, "An image to train in; run-in-container.sh builds and runs it.", facts)
    driver = (
        "The container uses the host's driver. AMD tests a driver with ROCm user space up to"
        " two releases older or newer; a much older driver needs an older image."
    )
    return "\n".join([*comments([*head, driver]), *base, "", *_layers(export)]) + "\n"


def run_script(export: Export) -> str:
    """Write the script that builds the image and trains in it."""
    command = ["rocsteady", "run", "--yes", "--", *command_elsewhere(export.command)]
    if export.unset:
        command = ["env", *(word for name in export.unset for word in ("-u", name)), *command]
    more = "".join(
        f"    --env {shlex.quote(f'{name}={value}')} \\\n"
        for name, value in export.variables.items()
        if name not in export.unset
    )
    what, facts = "Builds the image and trains in it, in this folder.", f"options as of {AS_OF}"
    head = remarks(export, what, f"{facts} from AMD's page on PyTorch in Docker.")
    script = RUN.format(
        dockerfile=DOCKERFILE,
        tag=f"{slug(export.name)}:rocsteady",
        project=PROJECT,
        more=more,
        command=shlex.join(command),
    )
    return "\n".join(["#!/bin/bash", *comments([*head, CHECK]), script])


def _other_torch(export: Export, torch: str) -> str:
    here = export.torch
    return f"; here it is torch {here}." if here and not here.startswith(torch) else "."


def _from_wheels(export: Export) -> list[str]:
    torch = shlex.quote(f"torch[device-{export.gfx}]")
    return [
        f"FROM {UBUNTU}",
        "# hadolint ignore=DL3008",
        "RUN apt-get update \\",
        "    && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \\",
        "    && rm -rf /var/lib/apt/lists/* \\",
        "    && python3 -m venv /opt/venv",
        'ENV PATH="/opt/venv/bin:$PATH" PIP_NO_CACHE_DIR=1',
        "# A nightly index keeps no version for long, so none is named.",
        "# hadolint ignore=DL3013",
        f"RUN python3 -m pip install --index-url {WHEELS} {torch}",
    ]


def _layers(export: Export) -> list[str]:
    """Put in what is needed beside torch; the project itself is mounted when it runs."""
    lines = [f"WORKDIR {PROJECT}"]
    inside = export
    if export.requirements:
        lines.append(_copy(export.requirements, REQUIREMENTS_AT))
        inside = replace(inside, requirements=REQUIREMENTS_AT)
    if export.rocsteady.startswith("./"):
        lines.append(_copy(export.rocsteady, f"{ROCSTEADY_AT}/"))
        inside = replace(inside, rocsteady=ROCSTEADY_AT)
    return [*lines, "RUN " + " \\\n    && ".join(install(inside))]


def _copy(source: str, target: str) -> str:
    """Spell a path so that nothing in it is filled in, nor taken for a pattern."""
    literal = re.sub(r"""([$'"\\])""", r"\\\1", source.replace("[", "[[]"))
    return f"COPY {json.dumps([literal, target])}"
