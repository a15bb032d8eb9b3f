"""The names of this machine, its people and its folders, for what may be sent to others."""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

from rocsteady.store.redaction.redactor import Redactor, passwords_in
from rocsteady.store.redaction.secret_names import names_secret

HOMES = ("HOME", "USERPROFILE")
USERS = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER", "JUPYTERHUB_USER")
HOSTS = ("HOSTNAME", "COMPUTERNAME", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST")
NAME_SERVERS = Path("/etc/resolv.conf")
_SHORT = 4096  # characters of a file that names the domains of this host


def redactor_here(environment: Mapping[str, str] = os.environ) -> Redactor:
    """Return a redactor that knows every name this machine goes by. Nothing asks a name server."""
    homes = [environment[name] for name in HOMES if environment.get(name)]
    users = [environment.get(name, "") for name in USERS]
    if environment is os.environ:
        homes += [str(Path.home()), str(Path.home().resolve())]
        users.append(_login())
    users += [home.replace("\\", "/").rstrip("/").rpartition("/")[2] for home in homes]
    names = [platform.node(), *(environment.get(name, "") for name in HOSTS)]
    short = [name.partition(".")[0] for name in names]
    domains = [name.partition(".")[2] for name in names]
    found = (name for name in (*domains, *_domains()) if "." in name)
    hosts = [*names, *short, *found]
    secrets = [value for name, value in environment.items() if names_secret(name, value)]
    secrets += [password for value in environment.values() for password in passwords_in(value)]
    return Redactor(homes=homes, users=users, hosts=hosts, secrets=secrets)


def _login() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # no such user
        return ""


def _domains() -> Iterator[str]:
    try:
        with NAME_SERVERS.open(errors="replace") as stream:
            lines = stream.read(_SHORT).splitlines()
    except OSError:
        return
    for words in map(str.split, lines):
        if words[:1] in (["search"], ["domain"]):
            yield from words[1:]
