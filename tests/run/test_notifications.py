"""Notices arrive at a real server and a real command: once, redacted."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from rocsteady.errors import JobError
from rocsteady.run.job.job_file import parse_job, user_configuration
from rocsteady.run.job.notify import Notify, NotifyEvent
from rocsteady.run.telling.notifications import (
    Channel,
    Notice,
    Notifier,
    channels,
    redacted,
    webhook_post,
)

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz0123456789"  # noqa: S105 - of nobody
NOTICE = Notice(
    event=NotifyEvent.INCIDENT,
    cause="incident hang",
    run="calm-otter",
    title="rocsteady: calm-otter: hung",
    text=f"Restarted. <!channel> @everyone token={TOKEN}",
    at=1.0,
)
posix = pytest.mark.skipif(os.name == "nt", reason="scripts with #! are of POSIX")


class Handler(BaseHTTPRequestHandler):
    seen: ClassVar[list[tuple[str, dict[str, str], bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, dict(self.headers), body))
        if self.path == "/slow":
            time.sleep(3)
        code = {"/gone": 404, "/moved": 302}.get(self.path, 200)
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Handler.seen.clear()
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    made.server_close()
    thread.join()


def test_a_webhook_gets_it_without_the_secret(server: str) -> None:
    assert Channel(webhook=f"{server}/hook/s3cr3t").send(NOTICE) == ""

    ((path, _, body),) = Handler.seen
    assert path == "/hook/s3cr3t"
    assert TOKEN.encode() not in body
    assert json.loads(body)["event"] == "incident"
    assert json.loads(body)["text"].startswith("Restarted.")


@pytest.mark.parametrize(("path", "why"), [("/gone", "HTTP status 404"), ("/moved", "status 302")])
def test_a_refusal_is_named_without_the_address(server: str, path: str, why: str) -> None:
    said = Channel(webhook=f"{server}{path}").send(NOTICE)

    assert why in said
    assert "127.0.0.1" not in said
    assert len(Handler.seen) == 1  # no redirect was followed


def test_nobody_listens() -> None:
    said = Channel(webhook="http://127.0.0.1:9/s3cr3t").send(NOTICE)

    assert said
    assert "s3cr3t" not in said


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(stat.S_IRWXU)
    return path


@posix
def test_a_command_gets_variables_and_no_shell(tmp_path: Path) -> None:
    script(
        tmp_path / "told",
        "import json, os, sys\n"
        "names = [name for name in os.environ if name.startswith('ROCSTEADY_')]\n"
        "told = {name: os.environ[name] for name in names}\n"
        "open('out', 'w').write(json.dumps([sys.argv[1:], told]))\n",
    )
    channel = Channel(command=("./told", "$(touch shell)", "a b"), folder=tmp_path)

    assert channel.send(NOTICE) == ""
    words, told = json.loads((tmp_path / "out").read_text())
    assert words == ["$(touch shell)", "a b"]
    assert told["ROCSTEADY_EVENT"] == "incident"
    assert told["ROCSTEADY_RUN_NAME"] == "calm-otter"
    assert TOKEN not in told["ROCSTEADY_TEXT"]
    assert not (tmp_path / "shell").exists()


def test_one_for_each_cause_and_a_failure_is_reported_once(server: str) -> None:
    notifier = Notifier((Channel(webhook=f"{server}/gone"),))
    said: list[str] = []
    for cause in ("a", "a", "b"):
        notifier.send(msgspec.structs.replace(NOTICE, cause=cause), said.append)
    notifier.close()

    assert len(Handler.seen) == 2
    assert said == [
        "notification not sent by webhook at 127.0.0.1 (json): HTTP status 404.",
    ]


def test_nobody_waits_for_a_slow_webhook(server: str) -> None:
    notifier = Notifier((Channel(webhook=f"{server}/slow"),))
    began = time.monotonic()
    notifier.send(NOTICE, lambda _: None)
    sent = time.monotonic() - began
    notifier.close(timedelta(seconds=0.2))

    assert sent < 1.0
    assert time.monotonic() - began < 2.5


def test_an_event_that_is_not_wanted_is_not_sent(server: str) -> None:
    notifier = Notifier((Channel(webhook=f"{server}/hook", on=(NotifyEvent.END,)),))
    notifier.send(NOTICE, lambda _: None)
    notifier.close()

    assert Handler.seen == []


@pytest.mark.parametrize(
    ("address", "laid_out"),
    [
        (
            "https://hooks.slack.com/services/T/B/x",
            {"text": "HEAD\nRestarted. &lt;!channel&gt; @all"},
        ),
        (
            "https://discord.com/api/webhooks/1/x",
            {"content": "HEAD\nRestarted. <!channel> @all", "allowed_mentions": {"parse": []}},
        ),
    ],
)
def test_the_layout_follows_from_the_address(address: str, laid_out: dict[str, object]) -> None:
    notice = msgspec.structs.replace(NOTICE, title="HEAD", text="Restarted. <!channel> @all")

    assert json.loads(str(webhook_post(notice, address)["body"])) == laid_out
    assert webhook_post(notice, "https://ntfy.sh/topic") == {
        "url": "https://ntfy.sh/topic",
        "headers": {"Content-Type": "text/plain; charset=utf-8", "Title": "HEAD"},
        "body": notice.text,
    }


def test_the_configuration_of_the_user_and_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "rocsteady").mkdir()
    (tmp_path / "rocsteady" / "config.toml").write_text('[notify]\ncommand = ["beep"]\n')
    text = '[notify]\nwebhook = "https://ntfy.sh/topic"\ncommand = ["beep"]\n'
    job = parse_job(f'command = ["a"]\n{text}')

    found = channels(job, tmp_path)

    assert user_configuration().notify == Notify(command=("beep",))
    assert [channel.name for channel in found] == [
        "command beep",
        "webhook at ntfy.sh (ntfy)",
    ]


def run_words(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "rocsteady", *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@posix
def test_a_run_tells_of_its_end_and_the_address_is_shown_nowhere(
    server: str, tmp_path: Path
) -> None:
    (tmp_path / "fails.py").write_text("raise KeyError('x')\n")
    (tmp_path / "rocsteady.toml").write_text(
        f'command = ["{sys.executable}", "fails.py"]\n[notify]\nwebhook = "{server}/s3cr3t"\n'
    )

    unasked = run_words(tmp_path, "notify", "--test")
    tried = run_words(tmp_path, "notify", "--test", "--yes")
    listed = run_words(tmp_path, "notify")
    run = run_words(tmp_path, "run", "--yes", "--name", "one")
    shown = [run_words(tmp_path, *words) for words in (("report", "--json"), ("status", "--json"))]
    (tmp_path / "rocsteady.toml").write_text(
        f'command = ["{sys.executable}", "fails.py"]\n[notify]\nwebhook = "{server}/0th3r"\n'
    )
    changed = run_words(tmp_path, "run", "--name", "two")

    assert (unasked.returncode, unasked.stdout) == (2, "")  # a file of a stranger
    assert tried.stdout == "webhook at 127.0.0.1 (json): sent\n", tried.stderr
    assert listed.stdout == "webhook at 127.0.0.1 (json): on incident, deadline, end\n"
    sent = [json.loads(body) for _, _, body in Handler.seen]
    assert [(each["event"], each["run"]) for each in sent] == [("end", "test"), ("end", "one")]
    assert "KeyError" in sent[1]["text"], sent
    assert changed.returncode == 2
    assert "changed since" in changed.stderr
    for each in (unasked, tried, listed, run, *shown, changed):
        assert "s3cr3t" not in each.stdout + each.stderr
        assert "0th3r" not in each.stdout + each.stderr


@posix
def test_an_address_can_be_given_for_one_run(server: str, tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("raise KeyError('x')\n")
    command = ("--name", "one", "--", sys.executable, "fails.py")

    wrong = run_words(tmp_path, "run", "--notify", "ntfy.sh/topic", *command)
    run = run_words(tmp_path, "run", "--notify", f"{server}/s3cr3t", *command)
    again = run_words(tmp_path, "run", "--resume", "one", "--yes")
    shown = run_words(tmp_path, "report", "--json")

    assert wrong.returncode == 2
    assert "must begin with https://" in wrong.stderr
    sent = [json.loads(body) for _, _, body in Handler.seen]
    assert [(each["event"], each["run"]) for each in sent] == [("end", "one"), ("end", "one")]
    for each in (run, again, shown):
        assert "s3cr3t" not in each.stdout + each.stderr


@posix
@pytest.mark.slow
def test_two_crashes_of_a_kind_are_told_once(server: str, tmp_path: Path) -> None:
    (tmp_path / "crashes.py").write_text(
        "import os, pathlib, time\n"
        "kept = pathlib.Path('kept')\n"
        "times = int(kept.read_text()) if kept.exists() else 0\n"
        "kept.write_text(str(times + 1))\n"
        "for step in range(40):\n"
        "    print(f'step {step + 1}/40', flush=True)\n"
        "    time.sleep(0.05)\n"
        "    if times < 2 and step == 30: os.kill(os.getpid(), 9)\n"
    )
    (tmp_path / "rocsteady.toml").write_text(
        f'command = ["{sys.executable}", "crashes.py"]\n[notify]\nwebhook = "{server}/hook"\n'
    )

    run = run_words(
        tmp_path, "run", "--yes", "--resume", "never", "--no-workarounds", "--name", "one"
    )

    assert run.returncode == 0, run.stderr
    assert (tmp_path / "kept").read_text() == "3"
    sent = [json.loads(body) for _, _, body in Handler.seen]
    assert [each["event"] for each in sent] == ["incident", "end"]
    assert sent[0]["text"].startswith("rocsteady restarts the run")
    assert sent[1]["title"] == "rocsteady: one is done"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('webhook = "file:///etc/passwd"', "notify.webhook: must begin with https://"),
        ('webhook = "hooks.slack.com/x"', "notify.webhook: must begin with https://"),
        ('command = [""]', "notify.command: must name a program"),
        ("on = ['never']", "notify.on"),
        ('kind = "slack"', "notify.kind: unknown key"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(line: str, problem: str) -> None:
    with pytest.raises(JobError, match=problem):
        parse_job(f'command = ["a"]\n[notify]\n{line}\n')


def test_the_name_of_a_run_marks_no_secret() -> None:
    title = "rocsteady: secret-x: out of memory"
    hung = msgspec.structs.replace(NOTICE, run=TOKEN, title=f"rocsteady: {TOKEN}: hung")

    assert redacted(msgspec.structs.replace(NOTICE, run="secret-x", title=title)).title == title
    assert TOKEN not in str(redacted(hung))
