"""Choose rocsteady's rendezvous in a torchrun on one host, unless the user chose one.

It is chosen in the launcher itself and not by a variable of the run: where ``inside/`` cannot get
in, torchrun would not know a rendezvous of that name, and would not start.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence

BACKEND = "PET_RDZV_BACKEND"  # every option of torchrun has such a variable
NAME = "rocsteady"
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
RANK = "TORCHELASTIC_RUN_ID"  # a process that has it is a rank and launches nothing
ONE_HOST = ("1", "1:1")
CHOSEN = ("rdzv_backend", "rdzv_endpoint", "standalone", "node_rank", "master_addr")


def choose(arguments: Iterable[str], environment: MutableMapping[str, str]) -> None:
    if RANK in environment:
        return
    environment.setdefault(OWN_STORE, "1")
    if not _is_chosen([*arguments], environment):
        environment[BACKEND] = NAME


def _is_chosen(arguments: list[str], environment: MutableMapping[str, str]) -> bool:
    """Return whether the user said anything about where ranks meet, or has several hosts."""
    given = options(arguments)
    hosts = given.get("nnodes") or environment.get("PET_NNODES", "1")
    return hosts not in ONE_HOST or any(
        name in given or f"PET_{name.upper()}" in environment for name in CHOSEN
    )


def options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the options of a command line by torchrun's names; the first of a name counts."""
    found: dict[str, str] = {}
    for word, following in zip(arguments, (*arguments[1:], "")):
        name, is_joined, value = word.partition("=")
        if name.startswith("-"):
            found.setdefault(name.lstrip("-").replace("-", "_"), value if is_joined else following)
    return found
