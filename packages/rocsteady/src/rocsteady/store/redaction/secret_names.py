"""What a name says of the value beside it, and whether a value looks like a secret."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from itertools import pairwise


class Kind(Enum):
    """What a name says about the value beside it."""

    SECRET = "secret"  # noqa: S105 - nobody would use this name for anything else
    LIKELY = "likely"  # names a secret, unless the value is plainly something else
    USER = "user"
    HOST = "host"
    SERIAL = "serial"


_STRONG = (
    "password",
    "passwd",
    "passwort",
    "passphrase",
    "passcode",
    "secret",
    "credential",
    "apikey",
    "webhook",
)
_LIKELY = frozenset({
    "auth", "authorization", "bearer", "cookie", "cred", "creds", "dsn", "hmac", "jwt", "key",
    "otp", "pass", "pat", "psk", "pw", "pwd", "sas", "sessid", "session", "sessionid", "sig",
    "signature", "token",
})  # fmt: skip
_JOINED = (
    "token",
    "pwd",
    "sessid",
    "sessionid",
    "authkey",
    "accesskey",
    "accountkey",
    "privatekey",
    "signingkey",
)
_AFTER = frozenset({"id", "value", "data", "b64", "base", "raw", "hex", "string", "header"})
_USERS = frozenset({"user", "username", "logname", "login"})
_HOSTS = frozenset({"host", "hostname", "nodename", "nodelist", "addr", "endpoint", "fqdn"})
# What comes before "token", "key" and "pass" in names that hold no secret.
_HARMLESS_BEFORE = frozenset({
    "added", "backward", "begin", "bos", "cache", "cls", "dict", "each", "end", "eos", "first",
    "foreign", "forward", "full", "group", "image", "last", "mask", "max", "metric", "min",
    "missing", "monitor", "multi", "new", "next", "no", "num", "one", "pad", "per", "primary",
    "prompt", "registry", "second", "sep", "single", "sort", "special", "start", "state", "stop",
    "unexpected", "unk",
})  # fmt: skip
# What comes before "token" and "key" in names that nobody would use for anything else.
_OF_SERVICE = frozenset({
    "access", "account", "admin", "anthropic", "api", "auth", "aws", "azure", "bearer", "bot",
    "clearml", "comet", "csrf", "databricks", "deploy", "discord", "docker", "encryption", "gh",
    "git", "github", "gitlab", "google", "hf", "hub", "huggingface", "jupyter", "kaggle", "license",
    "login", "mlflow", "modal", "neptune", "npm", "oauth", "openai", "personal", "private", "pypi",
    "refresh", "replicate", "runpod", "service", "signing", "slack", "ssh", "storage", "telegram",
    "upload", "vault", "wandb",
})  # fmt: skip


_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_CONSTANT = re.compile(
    r"(?:none|true|false|null|nil|yes|no|on|off|\*+|</?[a-z_ -]{1,40}>|<\|[a-z0-9_ -]{1,40}\|>"
    r"|\.\.\."
    r"|(?:is )?(?:not (?:set|found|given|provided|configured|required)|missing|unset|required))$",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"(?:lambda\b|tensor\(|torch\.|aten::|\(|\[|\{|(?:os|self|args|cfg|config|opts?|settings|hparams"
    r"|operator|getpass|socket|str|int|len|sys|np)[.\[(])"
)
_CODE_WORD = re.compile(r"(?:lambda|len|str|int|float|key|token|auth|user|host|itemgetter)$")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,6}|[0-9]{1,9}\.[0-9]{1,9}(?:e[-+]?[0-9]{1,3})?)%?$")
_STATUS = frozenset({
    "basic", "bearer", "denied", "empty", "error", "expired", "failed", "found", "invalid", "is",
    "missing", "name", "not", "ok", "required", "unknown", "unset", "value", "was",
})  # fmt: skip
# Names of parameters and of PyTorch's own keys: "fc.weight", "store_based_barrier_key:1".
_PARAMETER = re.compile(
    r"(?:\w{1,40}\.){1,20}(?:weight|bias|\w{0,20}(?:mean|var|tracked))$"
    r"|[a-z]{1,20}(?:_[a-z]{1,20}){2,6}(?::[0-9]{1,6})?$"
)
_SLUG = re.compile(r"[a-z]{2,20}(?:-[a-z0-9]{1,20}){1,8}")
_CALL = re.compile(r"[A-Za-z_]\w{0,60}(?:\.\w{1,60}){1,8}\(")
_PLAIN_HOST = re.compile(
    r"[0-9.:]+$|\[|x86|aarch|cpu|gpu|cuda|hip\b|linux|device|memory|pinned|local|0x|/|-",
    re.IGNORECASE,
)
_CHANCE = re.compile(r"[A-Za-z0-9+/=_-]+")
_HEX = re.compile(r"[0-9a-f]{16,}")
_LEAST_TURNS, _TURNS = 5, 0.4  # from small to capital letters and back, of all letters
_LEAST_VALUE = 8


@lru_cache(maxsize=4096)
def kind_of(name: str) -> Kind | None:  # noqa: PLR0911 - one answer a rule
    """Say what a name means for the value beside it."""
    if name in ("S/N", "s/n"):
        return Kind.SERIAL
    parts = [part.lower() for part in _PARTS.findall(name)]
    letters = "".join(each for each in name.lower() if each.isalpha())  # also passWord, pass_word
    if any(word in letters for word in _STRONG[:5]) or any(
        word in part for part in parts for word in _STRONG
    ):
        return Kind.SECRET
    if "serial" in parts or parts[-2:] in (["unique", "id"], ["hive", "id"], ["machine", "id"]):
        return Kind.SERIAL
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in _AFTER):
        parts.pop()
    if not parts:
        return None
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last in _LIKELY or last.endswith(_JOINED):
        if before in _OF_SERVICE and last in ("key", "token"):
            return Kind.SECRET
        return None if before in _HARMLESS_BEFORE else Kind.LIKELY
    if last in _USERS:
        return Kind.USER
    if last in _HOSTS and (last != "addr" or before in ("master", "host", "server", "node")):
        return Kind.HOST
    return None


def harmless(kind: Kind, name: str, value: str) -> bool:  # noqa: PLR0911 - one answer a rule
    """Say whether a value beside such a name is plainly no secret, and may be needed."""
    if not value or _CONSTANT.match(value):
        return True
    if kind is Kind.SECRET:
        return bool(_CODE.match(value)) and not value.startswith(("(", "[", "{"))
    if name.lstrip("-") in ("PWD", "pwd") and (value[0] == "/" or value[1:3] in (":\\", ":/")):
        return True  # the current folder
    if kind is Kind.SERIAL:
        return len(value) < 5 or _CODE.match(value) is not None  # noqa: PLR2004 - a serial is long
    if _NUMBER.match(value) or _CODE.match(value) or _CODE_WORD.match(value):
        return True
    if kind in (Kind.USER, Kind.HOST):
        return value[0].isdigit() or bool(_PLAIN_HOST.match(value))
    if name == "signature" and _SLUG.fullmatch(value):
        return True  # of a failure that is known here
    known = value.lower().rstrip(".,;:") in _STATUS or _CALL.match(value)
    return bool(known or _PARAMETER.match(value))


def names_secret(name: str, value: str) -> bool:
    """Say whether a variable holds a secret that can be told from everyday words."""
    kind = kind_of(name)
    if kind not in (Kind.SECRET, Kind.LIKELY) or harmless(kind, name, value):
        return False
    return len(value) >= _LEAST_VALUE and like_a_password(value)


def looks_random(value: str, *, least: int = 16, least_digits: int = 3) -> bool:
    """Say whether a word is no word: long, with digits, and in no case that a name would have."""
    if len(value) < least or not _CHANCE.fullmatch(value):
        return False
    mixed = value.lower() != value != value.upper()
    digits = sum(mark.isdigit() for mark in value)
    return digits >= least_digits and (mixed or bool(_HEX.fullmatch(value)))


def like_a_password(word: str) -> bool:
    """Say whether a word is none of a sentence, and no path, number or code."""
    if word.startswith(("/", "./", "~")):
        return False
    if not any(mark.isdigit() for mark in word):
        turns = sum(one.islower() != two.islower() for one, two in pairwise(word))
        return turns >= max(_LEAST_TURNS, len(word) * _TURNS)
    return not (_NUMBER.match(word) or _CODE.match(word) or _CALL.match(word))
