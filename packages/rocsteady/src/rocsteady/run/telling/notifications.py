"""Tells people who do not look at a run of its incidents, a missed deadline and its end.

A command and a webhook each run in a process of their own, started by a thread: a run never
waits for them. Each failure is reported once.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import msgspec

from rocsteady.model import Decision, Failure, Next, RunOutcome, Value
from rocsteady.run.job.job_file import user_configuration
from rocsteady.run.job.notify import NotifyEvent, WebhookKind, host_of, kind_of
from rocsteady.run.job.values import Job
from rocsteady.run.stopwatch import Stopwatch
from rocsteady.run.telling.announcer import Announcer
from rocsteady.store.redaction import redactor_here
from rocsteady.store.values import Run
from rocsteady.system import webhook_post as sender
from rocsteady.system.bounded_call import Answer, AnswerKind, ask
from rocsteady.wording import duration

DISCORD_LIMIT, TEXT_LIMIT = 1900, 3000  # characters
SEND_WITHIN = timedelta(seconds=20)  # for one way
COMPLAINT_LENGTH = 200  # characters of what a program complained of
SAME_SETTINGS = ("", "retry")  # the same again


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
        return {
            "ROCSTEADY_EVENT": self.event.value,
            "ROCSTEADY_RUN_NAME": self.run,
            "ROCSTEADY_TITLE": self.title,
            "ROCSTEADY_TEXT": self.text,
        }


def webhook_post(notice: Notice, url: str) -> dict[str, object]:
    """Lay a notice out for a webhook; nothing in it can call people by name or to a channel."""
    kind = kind_of(url)
    text = f"{notice.title}\n{notice.text}"[:TEXT_LIMIT]
    if kind is WebhookKind.NTFY:
        title = notice.title.encode("ascii", "replace").decode()
        headers = {"Content-Type": "text/plain; charset=utf-8", "Title": title}
        return {"url": url, "headers": headers, "body": notice.text[:TEXT_LIMIT]}
    content: dict[str, object]
    if kind is WebhookKind.SLACK:
        safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        content = {"text": safe}
    elif kind is WebhookKind.DISCORD:
        content = {"content": text[:DISCORD_LIMIT], "allowed_mentions": {"parse": []}}
    else:
        content = {"version": 1, **msgspec.to_builtins(notice)}
    body = msgspec.json.encode(content).decode()
    return {"url": url, "headers": {"Content-Type": "application/json"}, "body": body}


class Channel(Value, frozen=True, kw_only=True):
    """One way to tell people: a command, or a webhook."""

    command: tuple[str, ...] = ()
    folder: Path = Path()  # from which the command is found
    webhook: str = ""
    on: tuple[NotifyEvent, ...] = tuple(NotifyEvent)

    @property
    def name(self) -> str:
        """What may be shown."""
        if self.command:
            return f"command {Path(self.command[0]).name}"
        return f"webhook at {host_of(self.webhook)} ({kind_of(self.webhook).value})"

    def send(self, notice: Notice) -> str:
        """Send a notice, redacted; return why that failed, or ""."""
        try:
            return _why(self._sent(redacted(notice)))
        except Exception as error:  # noqa: BLE001 - it costs one notice, never the run
            return f"{type(error).__name__}"

    def _sent(self, notice: Notice) -> Answer:
        if self.command:
            return ask(
                self.command,
                within=SEND_WITHIN,
                environment={**os.environ, **notice.variables},
                folder=str(self.folder),
                complaints=True,
            )
        command = [sys.executable, "-I", "-S", str(Path(sender.__file__))]
        post = msgspec.json.encode(webhook_post(notice, self.webhook))
        return ask(command, within=SEND_WITHIN, given=post)


def channels(job: Job | None, folder: Path) -> tuple[Channel, ...]:
    """Return what the user's configuration and the job file in ``folder`` want, each way once."""
    wanted = [(user_configuration().notify, Path.home()), (job.notify if job else None, folder)]
    found: dict[object, Channel] = {}
    for notify, place in wanted:
        if notify and notify.command:
            channel = Channel(command=notify.command, folder=place, on=notify.on)
            found.setdefault(notify.command, channel)
        if notify and notify.webhook:
            found.setdefault(notify.webhook, Channel(webhook=notify.webhook, on=notify.on))
    return tuple(found.values())


@dataclass
class Notifier:
    """Sends each notice once by all ways. Nobody waits for it but ``close``."""

    channels: tuple[Channel, ...]
    _causes: set[str] = field(default_factory=set)
    _failed: set[str] = field(default_factory=set)
    _waiting: queue.Queue[tuple[Notice, Callable[[str], None]] | None] = field(
        default_factory=queue.Queue
    )
    _thread: threading.Thread | None = None

    def send(self, notice: Notice, report: Callable[[str], None]) -> None:
        """Send a notice, unless its cause is known; ``report`` is told of the first failure."""
        if notice.cause in self._causes or not self.channels:
            return
        self._causes.add(notice.cause)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="rocsteady-notify")
            self._thread.start()
        self._waiting.put((notice, report))

    def close(self, within: timedelta = SEND_WITHIN) -> None:
        """Send what is waiting, for no longer than promised."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(within.total_seconds())

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            notice, report = item
            for channel in self.channels:
                if notice.event not in channel.on:
                    continue
                why = channel.send(notice)
                if why and channel.name not in self._failed:
                    self._failed.add(channel.name)
                    report(f"notification not sent by {channel.name}: {why}.")


def redacted(notice: Notice) -> Notice:
    """Hide secrets and the names of this machine: a notice may leave it.

    The title begins with the run, whose name by itself marks no secret: ``secret-x: failed``.
    """
    hide = redactor_here().text
    before, name, rest = notice.title.partition(notice.run)
    return msgspec.structs.replace(
        notice,
        run=hide(notice.run),
        title=hide(before) + hide(name) + hide(rest),
        text=hide(notice.text),
    )


def sample_notice() -> Notice:
    return Notice(
        event=NotifyEvent.END,
        cause="test",
        run="test",
        title="rocsteady: test notification",
        text="If you can read this, notifications arrive.",
        at=time.time(),
    )


def _why(answer: Answer) -> str:
    """Return why a program did not do it; "" if it did."""
    if answer.outcome is not AnswerKind.ANSWERED:
        return str(answer.outcome.value)
    if answer.exit_code == 0:
        return ""
    said: str = redactor_here().text(" ".join(answer.text.split())[:COMPLAINT_LENGTH])
    return said or f"exit code {answer.exit_code}"


class RunNotices:
    """Makes the notices of one run. Without a sender there are none."""

    def __init__(self, run: Run, announcer: Announcer, sender: Notifier | None) -> None:
        self._run, self._announcer, self._sender = run, announcer, sender
        self._since = Stopwatch()
        self._why = ""  # the last decision

    def failed(self, failure: Failure | None, decision: Decision, ranks: str = "") -> None:
        """Notify of an incident, once for each kind; the one that ends the run comes with the end.

        ``ranks`` is a clause about the ranks that hold up the others.
        """
        lines = failure.traceback.strip().splitlines() if failure else []
        self._why = ". ".join([decision.why.rstrip("."), *lines[-1:]])
        if failure is None or decision.next is Next.END:
            return
        change = "" if decision.remedy in SAME_SETTINGS else f" with {decision.remedy}"
        self._send(
            NotifyEvent.INCIDENT,
            failure.kind,
            f"{self._run.name}: {failure.title}",
            f"{ranks[:1].upper()}{ranks[1:]}{'. ' * bool(ranks)}rocsteady restarts the run{change}."
            f" {decision.why}",
        )

    def will_be_late(self, text: str) -> None:
        self._send(NotifyEvent.DEADLINE, "", f"{self._run.name} will miss its deadline", text)

    def ended(self, outcome: RunOutcome) -> None:
        """Notify of the end, unless the user stopped the run, and wait until that is sent."""
        if outcome is RunOutcome.STOPPED:
            return
        took = duration(self._since.seconds)
        if outcome is RunOutcome.DONE:
            self._send(NotifyEvent.END, "", f"{self._run.name} is done", f"Finished in {took}.")
        else:
            why = f": {self._why}" if self._why else ""
            text = f"Ended after {took}{why}. To see more: rocsteady report {self._run.name}"
            self._send(NotifyEvent.END, "", f"{self._run.name}: {outcome.value}", text)
        if self._sender is not None:
            self._sender.close()

    def _send(self, event: NotifyEvent, cause: str, title: str, text: str) -> None:
        if self._sender is None:
            return
        notice = Notice(
            event=event,
            cause=f"{event.value} {cause}".rstrip(),
            run=self._run.name,
            title=f"rocsteady: {title}",
            text=" ".join(text.split()),
            at=time.time(),
        )
        self._sender.send(notice, self._announcer.say)
