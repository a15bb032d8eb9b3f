"""A holder that cannot be looked at is a holder, and a hang beside one is still found."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("needs /proc", allow_module_level=True)

from supervised import ROCSTEADY, Ended, Project
from torch_stand_in import stand_in_torch

VICTIM = Path(__file__).parent.parent / "victims" / "unseen_holders.py"
NOBODY = 65534
USERS = ("root", "nobody")
WAIT = 20.0  # seconds that a healthy one waits; it would be ended after 4.5 to 9
# May read the interpreter wherever it is installed; of a process, that opens nothing.
READS = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *READS)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")]


class Case:
    """One training, and the server outside whose answer ends its wait."""

    def __init__(self, folder: Path) -> None:
        self.project = Project(folder)
        self.project.environment["PYTHONPATH"] = stand_in_torch(self.project)
        self.project.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.server = socket.create_server(("127.0.0.1", 0))
        host, port = self.server.getsockname()
        self.project.environment["OUTSIDE"] = f"{host}:{port}"
        self.user: tuple[str, ...] = ()
        self.helpers: list[subprocess.Popen[bytes]] = []
        self.answering = threading.Thread(target=self._answer)
        self.answering.start()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):  # nobody asked, or the test is over
            line, _ = self.server.accept()
            with line:
                time.sleep(WAIT)
                line.send(b"x")

    def belongs_to_nobody(self) -> None:
        """Run as an ordinary user, with the agents that such a one has."""
        self.user = AS_NOBODY
        self.project.program = (*AS_NOBODY, *ROCSTEADY)
        for place in (self.project.folder, self.project.home, self.project.temporary):
            for each in (place, *place.rglob("*")):
                os.chown(each, NOBODY, NOBODY)
        for program in ("ssh-agent", "gpg-agent"):
            assert shutil.which(program), (
                f"{program} is missing: apt-get install openssh-client gnupg"
            )
        self.help("ssh-agent", "-D")
        self.help("gpg-agent", "--homedir", str(self.project.home), "--daemon", "sleep", "600")

    def help(self, *command: str) -> subprocess.Popen[bytes]:
        helper = subprocess.Popen(
            [*self.user, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**self.project.environment, "RANDOM_NAME": "outside"},
            start_new_session=True,
        )
        self.helpers.append(helper)
        return helper

    def outsider(self, how: str) -> None:
        """Start a process that is not of the run and can be handed descriptors."""
        path = str(self.project.temporary / "line")
        self.project.environment["HAND_TO"] = path
        helper = self.help(sys.executable, str(VICTIM), "outside", how, path)
        assert helper.stdout
        assert helper.stdout.readline() == b"ready\n"

    def run(self, *words: str) -> Ended:
        command = ("--max-attempts", "1", "--", sys.executable, str(VICTIM), *words)
        return self.project.run(*command, within=WAIT + 60)

    def close(self) -> None:
        for helper in self.helpers:
            helper.kill()
            helper.communicate()
        self.server.shutdown(socket.SHUT_RDWR)
        self.answering.join()
        self.server.close()
        self.project.close()


@contextlib.contextmanager
def a_case() -> Iterator[Case]:
    folder = Path(tempfile.mkdtemp(prefix="held-"))  # where nobody may come to, too
    folder.chmod(0o755)
    case = Case(folder)
    try:
        yield case
    finally:
        case.close()
        shutil.rmtree(folder)


@pytest.fixture
def case() -> Iterator[Case]:
    with a_case() as made:
        yield made


def assert_left_alone(ended: Ended) -> None:
    assert "done" in ended.out, ended.err
    assert (ended.code, ended.lines("hung")) == (0, []), ended.err


def assert_found(ended: Ended) -> None:
    assert len(ended.lines("hung")) == 1, ended.err
    seconds = ended.lines("hung")[0].rpartition(" · ")[2]
    assert seconds.endswith(" s"), seconds
    assert float(seconds.removesuffix(" s")) < 10, ended.err


@pytest.mark.parametrize("name", ["undumpable_queue", "undumpable_pair"])
def test_a_child_that_cannot_be_looked_at(case: Case, name: str) -> None:
    case.belongs_to_nobody()

    assert_left_alone(case.run(name))


def test_an_outsider_that_cannot_be_looked_at_at_the_end_of_our_socket(case: Case) -> None:
    case.belongs_to_nobody()
    case.outsider("undumpable")

    assert_left_alone(case.run("to_outsider"))


@pytest.mark.parametrize("how", ["thread", "ring"])
@pytest.mark.parametrize("user", USERS)
def test_an_outsider_with_a_table_or_a_ring_of_its_own(case: Case, how: str, user: str) -> None:
    if user == "nobody":
        case.belongs_to_nobody()
    case.outsider(how)

    assert_left_alone(case.run("to_outsider"))


@pytest.mark.parametrize("user", USERS)
def test_a_thread_of_a_child_with_a_table_of_its_own(case: Case, user: str) -> None:
    if user == "nobody":
        case.belongs_to_nobody()

    assert_left_alone(case.run("table_of_thread"))


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    "words",
    [
        ("pipe_of_its_own",),
        ("elder", "beside_elder"),
        ("beside_undumpable_with_lock",),
        ("table_of_stuck_thread",),
        ("ring_of_stuck_child",),
    ],
    ids=" ".join,
)
def test_a_hang_of_the_same_shape_is_found(case: Case, words: tuple[str, ...], user: str) -> None:
    if user == "nobody":
        case.belongs_to_nobody()
    case.outsider("ring")  # of which nothing is handed over

    assert_found(case.run(*words))
