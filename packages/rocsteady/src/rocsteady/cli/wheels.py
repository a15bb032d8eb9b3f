"""``rocsteady wheels``: the torch builds for a GPU, with the command to install each."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import click

from rocsteady.cli.options import open_root, root_option
from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.wheels import find_torch_offers
from rocsteady.screens.screen import present
from rocsteady.screens.torch_offers import render_offers
from rocsteady.suggestions import no_such

ONE_WORKS, NONE_WORKS = 0, 1  # torch builds
PYTHON_VERSION = re.compile(r"3\.\d{1,2}(\.\d{1,2})?")


@click.command("wheels")
@click.option(
    "--gpu",
    "gpus",
    metavar="NAME",
    multiple=True,
    help="GPU, such as gfx1100 or 'RX 7900 XT'. Repeat for each GPU.",
)
@click.option("--python", metavar="VERSION", help="Python version, such as 3.12.")
@click.option(
    "--os", "system", type=click.Choice(["linux", "wsl", "windows"]), help="Operating system."
)
@click.option("--all", "everything", is_flag=True, help="Show every build in full.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@root_option
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    gpus: tuple[str, ...],
    python: str | None,
    system: str | None,
    everything: bool,
    as_json: bool,
    root: Path | None,
) -> None:
    """List the torch builds for a GPU, with the command to install each.

    GPU, Python and operating system default to those of this machine. Supported: AMD lists the GPU
    for the build. Released: by PyTorch, which names no GPUs. Tested: by TheRock. Built: nobody says
    that it works. Nothing is downloaded.

    Exit code: 0 at least one build has no known blocking problem, 1 none has, 2 incorrect usage, 3
    could not examine the machine.
    """
    if python is not None and not PYTHON_VERSION.fullmatch(python):
        raise click.BadParameter(
            f"expected a version such as 3.12, got {python!r}.", param_hint="--python"
        )
    try:
        found = find_torch_offers(open_root(root, None), gpus=gpus, system=system, python=python)
    except LookupError as error:
        arches = doctors_knowledge().arches
        known = [*arches, *(card for arch in arches.values() for card in arch.cards)]
        here = "To use this machine's GPU: omit --gpu."
        raise click.BadParameter(
            f"{no_such('GPU', str(error), known)} {here}", param_hint="--gpu"
        ) from None
    present(found, partial(render_offers, everything=everything), as_json=as_json)
    ctx.exit(ONE_WORKS if found.usable() else NONE_WORKS)
