"""What names a place on a network or on a disk: folders of people, hosts, addresses, e-mail.

Only names that say nothing about a person or a site are kept: well-known public hosts, the loopback
address, ``/home/user`` itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv6Address

USER, HOST, HOME = "user", "host", "/home/user"
# Names that say nothing about a person or a place, and without which paths lose their meaning.
EVERYDAY = frozenset({
    "amd", "amdgpu", "bin", "conda", "cuda", "dev", "docker", "etc", "gpu", "home", "host", "kfd",
    "kubernetes", "lib", "linux", "local", "localhost", "opt", "podman", "proc", "python",
    "pytorch", "rocm", "root", "shm", "site-packages", "sys", "torch", "triton", "ubuntu", "user",
    "users", "usr", "venv", "windows",
})  # fmt: skip
# Hosts that anyone may talk to, and that the sources of rules name.
PUBLIC = (
    "amazonaws.com", "amd.com", "anaconda.org", "arxiv.org", "conda.io", "docker.io", "example.com",
    "example.net", "example.org", "ghcr.io", "github.com", "github.io", "githubusercontent.com",
    "gitlab.com", "google.com", "googleapis.com", "hf.co", "huggingface.co", "jax.dev",
    "kaggle.com", "kernel.org", "lightning.ai", "llvm.org", "microsoft.com", "neptune.ai",
    "nvidia.com", "openai.com", "pypi.org", "python.org", "pythonhosted.org", "pytorch.org",
    "readthedocs.io",
    "stackoverflow.com", "thegamingpcguide.com", "ubuntu.com", "wandb.ai", "wandb.com", "w3.org",
    "slack.com", "discord.com", "telegram.org", "debian.org", "freedesktop.org", "gnu.org",
)  # fmt: skip
_SURE_ENDS = frozenset({
    "com", "corp", "edu", "example", "gov", "intranet", "lan", "localdomain", "mil", "org",
})  # fmt: skip
_UNSURE_ENDS = frozenset({
    "ai", "cloud", "cluster", "dev", "home", "info", "int", "internal", "io", "local", "net",
    "private",
})  # fmt: skip
_COUNTRIES = frozenset({
    "ar", "at", "au", "be", "br", "ca", "ch", "cn", "cz", "de", "dk", "es", "eu", "fi", "fr", "gr",
    "hk", "hu", "ie", "il", "jp", "kr", "mx", "nl", "nz", "pl", "ru", "se", "sg", "sk", "tr", "tw",
    "ua", "uk", "us", "za",
})  # fmt: skip

_FOLDERS = re.compile(
    r"(?<![\w.~-])(?P<above>(?:/[\w.-]{1,64}){0,4}/home(?:s|[0-9]{0,2})/|/(?:Users|homes|u)/"
    r"|/(?:run/)?media/|/mnt/[a-z]/Users/|/(?:[\w.-]{1,64}/){1,2}users/)(?P<name>[^\s/\\:;,\"'<>|()\[\]{}*?$]{1,64})"
)
_WINDOWS = re.compile(
    r"(?P<above>(?:\b[A-Za-z]:|\\\\[\w.-]{1,63})(?:\\{1,4}|/)"
    r"(?:Users|Documents and Settings)(?:\\{1,4}|/))"
    r"(?P<name>[^\\/:*?\"<>|\r\n]{1,64}(?=[\\/])|[^\s\\/:*?\"<>|,;]{1,64})",
    re.IGNORECASE,
)
_TILDE = re.compile(r"(?<![\w/.~-])~(?P<name>[A-Za-z_][\w.-]{1,31})(?=[/\\])")
_OF_USER = re.compile(
    r"(?<=[/\\])(?P<above>torchinductor_|pytest-of-|hsperfdata_|runtime-)(?P<name>[\w.-]{2,64})"
)

_MAC = re.compile(
    r"(?<![0-9A-Za-z:-])(?:[0-9a-f]{2}(?P<sep>[:-])(?:[0-9a-f]{2}(?P=sep)){4}[0-9a-f]{2}"
    r"|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4})(?![0-9A-Za-z:]|-[0-9a-f])",
    re.IGNORECASE,
)
_IPV4 = re.compile(r"(?<![A-Za-z0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![A-Za-z0-9_-]|\.[A-Za-z0-9])")
_IPV4_DASHED = re.compile(r"(?<![A-Za-z0-9])ip-[0-9]{1,3}(?:-[0-9]{1,3}){3}(?![A-Za-z0-9])")
_VERSION = re.compile(
    r"(?:version|driver|firmware|release|build|rocm|==|>=|<=|~=|\bv|-)[\s\"':=]{0,4}$",
    re.IGNORECASE,
)
_IPV6 = re.compile(
    r"(?<![\w:.])[0-9a-f]{4}(?=:)(?:[0-9a-f:]{3,35})(?:[0-9.]{7,15})?(?:%\w{1,16})?(?![\w:])",
    re.IGNORECASE,
)
_AT = re.compile(r"@(?P<host>[A-Za-z0-9][\w-]{0,62}(?P<dots>(?:\.[\w-]{1,63}){0,8}))(?P<colon>:?)")
_IN_ADDRESS = re.compile(
    r"(?P<above>\b(?:https?|wss?|s?ftp|ssh|git|tcp|udp|grpc|rediss?|amqps?|mongodb|postgres(?:ql)?"
    r"|mysql|nfs|smb|ldaps?|env)://(?:<redacted>@)?)(?P<host>[A-Za-z0-9][\w.-]{0,253})"
)
_BRACKETED = re.compile(r"(?P<above>\[)(?P<host>[A-Za-z][\w.-]{1,253})(?=\]:[0-9]{2,5})")
_DOTTED = re.compile(
    r"(?<![\w.@/\\$%-])(?P<host>[a-z0-9][a-z0-9-]{0,62}(?:\.[a-z0-9][a-z0-9-]{0,62}){1,7})"
    r"(?![\w(\[=-]|\.\w|/)",
    re.IGNORECASE,
)
_OCTETS, _LONGEST_LOCAL, _LOOK_BACK = 255, 64, 16
_SMALL = 40  # no part of a version with four parts is larger, mostly
_STAND_IN_IPV6 = "2001:db8::1"


def is_public(host: str) -> bool:
    """Say whether a host is one that anyone may know."""
    lowered = host.lower().rstrip(".")
    return any(lowered == known or lowered.endswith(f".{known}") for known in PUBLIC)


def replace_folders(text: str) -> str:
    """Replace the names of people in the paths of their folders."""
    for pattern in (_FOLDERS, _WINDOWS, _OF_USER):
        text = pattern.sub(_named_folder, text)
    return _TILDE.sub(lambda found: _user_or(found["name"], "~"), text)


def replace_addresses(text: str, ipv4: Callable[[str], str]) -> str:
    """Replace addresses of machines and of people. ``ipv4`` gives the stand-in of one."""
    text = _MAC.sub(_mac, text)
    text = _IPV4.sub(lambda found: _ipv4(found, ipv4), text)
    text = _IPV4_DASHED.sub(HOST, text)
    if ":" in text:
        text = _IPV6.sub(_ipv6, text)
    text = _without_mail(text) if "@" in text else text
    for pattern in (_IN_ADDRESS, _BRACKETED):
        text = pattern.sub(lambda found: found["above"] + _host(found["host"]), text)
    return _DOTTED.sub(lambda found: _dotted(found["host"]), text)


def _user_or(name: str, above: str) -> str:
    kept = name.lower() in EVERYDAY or name.lower() in ("public", "default", "shared", "all users")
    return f"{above}{name if kept else USER}"


def _named_folder(found: re.Match[str]) -> str:
    return _user_or(found["name"], found["above"])


def _mac(found: re.Match[str]) -> str:
    return "00:00:00:00:00:00" if found["sep"] != "-" else "00-00-00-00-00-00"


def _ipv4(found: re.Match[str], stand_in: Callable[[str], str]) -> str:
    address = found.group()
    before = found.string[max(0, found.start() - _LOOK_BACK) : found.start()]
    octets = address.split(".")
    real = all(int(octet) <= _OCTETS and (octet == "0" or octet[0] != "0") for octet in octets)
    kept = ("127.", "0.", "255.", "192.0.2.")
    if not real or address.startswith(kept) or _VERSION.search(before):
        return address
    small = len(octets[0]) == 1 and max(map(int, octets)) <= _SMALL
    if (
        small
        and before[-1:] not in ("[", "(", "<")
        and found.string[found.end() : found.end() + 1] != ":"
    ):
        return address  # a version, far more likely
    return stand_in(address)


def _ipv6(found: re.Match[str]) -> str:
    address = found.group().partition("%")[0].rstrip(".")
    try:
        parsed = IPv6Address(
            address.rstrip(":") if address.endswith(":") and not address.endswith("::") else address
        )
    except AddressValueError:
        return found.group()
    return found.group() if parsed.is_loopback else _STAND_IN_IPV6


def _without_mail(text: str) -> str:
    """Replace ``name@host.domain``, and ``name@host:`` as in a prompt or an address for scp."""
    done: list[str] = []
    copied = 0
    for found in _AT.finditer(text):
        first = found.start()
        while (
            first > max(copied, found.start() - _LONGEST_LOCAL)
            and (text[first - 1].isalnum() or text[first - 1] in "._+-%")
        ):  # fmt: skip
            first -= 1
        last = found["dots"].rpartition(".")[2]
        mail = last.isalpha() and len(last) > 1
        prompt = not found["dots"] and found["colon"] and found["host"][0].isalpha()
        if first < found.start() and (mail or prompt):
            done += (text[copied:first], f"{USER}@{HOST}", found["colon"])
            copied = found.end()
    return "".join((*done, text[copied:]))


def _host(name: str) -> str:
    """Return what may be told of a host that something connects to."""
    whole = name.rstrip(".-")
    plain = "." not in whole and whole.lower() in EVERYDAY | {"proxy", "registry"}
    if plain or whole.replace(".", "").isdigit() or is_public(whole):
        return name
    return HOST + name[len(whole) :]


def _dotted(name: str) -> str:
    """Return what may be told of a name with dots in it: a host, a module, a file or a version."""
    labels = name.lower().split(".")
    end, count = labels[-1], len(labels)
    sure = end in _SURE_ENDS or (end in _COUNTRIES and count > 2)  # noqa: PLR2004 - a, b and the end
    marked = any(mark.isdigit() or mark == "-" for mark in labels[0])
    unsure = end in _UNSURE_ENDS and count > 2 and marked  # noqa: PLR2004 - the same
    return HOST if (sure or unsure) and not is_public(name) else name
