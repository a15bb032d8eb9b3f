"""Who is told of a run, and how: the table ``notify`` of a job file or of the user's configuration.

::

    [notify]
    command = ["./told.sh"]                        # never through a shell
    webhook = "https://hooks.slack.com/services/..."  # or Discord, ntfy, any that takes JSON
    on = ["incident", "deadline", "end"]
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from enum import Enum
from urllib.parse import urlsplit

from rocsteady.model import Value


class NotifyEvent(Enum):
    INCIDENT = "incident"
    DEADLINE = "deadline"  # it will be missed
    END = "end"


class WebhookKind(Enum):
    """What the other end of a webhook understands."""

    SLACK = "slack"
    DISCORD = "discord"
    NTFY = "ntfy"
    JSON = "json"


class Notify(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ways to tell people; each is off unless it is given."""

    command: tuple[str, ...] = ()
    webhook: str = ""  # an address; a secret
    on: tuple[NotifyEvent, ...] = tuple(NotifyEvent)


def notify_problems(notify: Notify | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong: the key, and a sentence without the address of a webhook."""
    if notify is None:
        return
    if notify.command and not notify.command[0]:
        yield "notify.command", "must name a program"
    if any("\0" in word for word in notify.command):
        yield "notify.command", "contains a zero byte"
    if notify.webhook and not host_of(notify.webhook):
        yield "notify.webhook", "must begin with https:// or http:// and name a host"


def host_of(address: str) -> str:
    """Return the host of an address, which alone may be shown; "" if it is none of the web."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port  # asked for: only then a wrong one is found
    except ValueError:
        return ""
    plain = address.isascii() and address.isprintable() and " " not in address
    return host if plain and parts.scheme in ("http", "https") else ""


def kind_of(webhook: str) -> WebhookKind:
    """Return the format of a webhook, by its address."""
    host = host_of(webhook)
    if host == "hooks.slack.com":
        return WebhookKind.SLACK
    if host in ("discord.com", "discordapp.com"):
        return WebhookKind.DISCORD
    return WebhookKind.NTFY if host.startswith("ntfy.") else WebhookKind.JSON


def notify_lines(notify: Notify | None) -> Iterator[str]:
    """Spell what a job file would start and send to, for the question whether to trust it."""
    if notify is None:
        return
    if notify.command:
        yield f"notify.command: {shlex.join(notify.command)}"
    if notify.webhook:
        digest = hashlib.sha256(notify.webhook.encode()).hexdigest()[:12]
        yield f"notify, to {host_of(notify.webhook)} (address with SHA-256 {digest})"
