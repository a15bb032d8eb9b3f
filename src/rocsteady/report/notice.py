"""What people are told of a run who do not look at it, and as what each webhook takes it."""

from __future__ import annotations

from email.message import EmailMessage

import msgspec

from rocsteady.job.notify import NotifyEvent, WebhookKind
from rocsteady.model import Value

DISCORD_LIMIT, TEXT_LIMIT = 1900, 3000  # characters


class Notice(Value, frozen=True, kw_only=True):
    """One thing to be told once."""

    event: NotifyEvent
    cause: str  # of two notices with the same cause, the second is not sent
    run: str
    title: str  # one line
    text: str
    at: float

    @property
    def variables(self) -> dict[str, str]:
        """The variables that a command is given."""
        return {
            "ROCSTEADY_EVENT": self.event.value,
            "ROCSTEADY_RUN_NAME": self.run,
            "ROCSTEADY_TITLE": self.title,
            "ROCSTEADY_TEXT": self.text,
        }


class WebhookPost(Value, frozen=True, kw_only=True):
    """What is sent to a webhook."""

    url: str
    headers: dict[str, str]
    body: str


def webhook_post(notice: Notice, url: str, kind: WebhookKind) -> WebhookPost:
    """Lay a notice out for a webhook; nothing in it can call people by name or to a channel."""
    text = f"{notice.title}\n{notice.text}"[:TEXT_LIMIT]
    if kind is WebhookKind.NTFY:
        title = notice.title.encode("ascii", "replace").decode()
        headers = {"Content-Type": "text/plain; charset=utf-8", "Title": title}
        return WebhookPost(url=url, headers=headers, body=notice.text[:TEXT_LIMIT])
    content: dict[str, object]
    if kind is WebhookKind.SLACK:
        safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        content = {"text": safe}
    elif kind is WebhookKind.DISCORD:
        content = {"content": text[:DISCORD_LIMIT], "allowed_mentions": {"parse": []}}
    else:
        content = {"version": 1, **msgspec.to_builtins(notice)}
    body = msgspec.json.encode(content).decode()
    return WebhookPost(url=url, headers={"Content-Type": "application/json"}, body=body)


def mail_text(notice: Notice, to: str) -> bytes:
    """Lay a notice out as a mail."""
    message = EmailMessage()
    message["To"] = to
    message["Subject"] = notice.title
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(notice.text)
    return message.as_bytes()


def terminal_notice(notice: Notice, environment: dict[str, str]) -> str:
    """Return what makes a terminal show a notification; "" where it is not known to."""
    program = environment.get("TERM_PROGRAM", "")
    kitty = environment.get("TERM", "") == "xterm-kitty"
    text = f"{notice.title}: {notice.text}"[:200].replace(";", ",")
    if program in ("iTerm.app", "WezTerm", "ghostty") or kitty or "WT_SESSION" in environment:
        return f"\x1b]9;{text}\x07"
    if "VTE_VERSION" in environment or environment.get("TERM", "").startswith(("rxvt", "foot")):
        return f"\x1b]777;notify;rocsteady;{text}\x07"
    return ""
