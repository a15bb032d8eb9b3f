"""``rocsteady knowledge`` from the outside, with a bundle from a file and from a server."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.knowledge.bundle import BundleContent
from rocsteady.knowledge.edition import load_edition
from rocsteady.knowledge.failures import load_failures
from rocsteady.knowledge.reader import load_knowledge
from tests.knowledge.test_bundle import KEY, bundled

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady

LATER = "2027-03-01"


@pytest.fixture
def bundle(cli: Rocsteady) -> Path:
    """Return a bundle that is signed by a key which this user accepts."""
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA", "APPDATA"):
        cli.environment[variable] = str(cli.folder / variable)
    for variable in ("XDG_CONFIG_HOME", "LOCALAPPDATA"):
        keys = cli.folder / variable / "rocsteady/knowledge/keys.txt"
        keys.parent.mkdir(parents=True)
        keys.write_text(KEY)
    content = BundleContent(
        edition=msgspec.structs.replace(load_edition(), date=LATER),
        knowledge=load_knowledge(),
        failures=load_failures(),
    )
    path = cli.folder / "bundle.json"
    path.write_bytes(bundled(content))
    return path


def test_it_shows_the_day_and_the_counts(cli: Rocsteady) -> None:
    told = json.loads(cli("knowledge", "--json").out)
    shown = cli("knowledge").out

    assert told["state"]["date"] == load_edition().date
    assert told["origin"] == "package"
    assert told["entries"]["rules"] >= 80
    assert told["entries"]["variables"] >= 260
    assert told["entries"]["failures"] >= 100
    assert told["entries"]["remedies"] >= 35
    assert f"Knowledge base dated {load_edition().date}" in shown


def test_a_bundle_is_taken_from_a_file_and_the_doctor_says_of_when_it_is(
    cli: Rocsteady, bundle: Path
) -> None:
    assert cli("knowledge", "diff", "--from", bundle).out == "0 added, 0 removed, 0 changed.\n"
    updated = cli("knowledge", "update", "--from", bundle)
    doctor = cli("doctor", "--root", cli.machine("rx7900xtx"))

    assert updated.code == 0, updated.err
    assert f"(knowledge base dated {LATER})" in doctor.out
    assert doctor.code == 0


def test_a_changed_bundle_is_refused_in_one_line(cli: Rocsteady, bundle: Path) -> None:
    bundle.write_bytes(bundle.read_bytes().replace(b"caching-off", b"caching-on0"))

    refused = cli("knowledge", "update", "--from", bundle)

    assert refused.code == 1
    assert len(refused.err.splitlines()) == 1
    assert "SHA-256" in refused.err
    assert LATER not in cli("knowledge").out


@pytest.fixture
def served(cli: Rocsteady) -> Iterator[str]:
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(cli.folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_bundle_is_taken_from_an_address(cli: Rocsteady, bundle: Path, served: str) -> None:
    assert cli("knowledge", "update", "--from", f"{served}/{bundle.name}").code == 0
    assert f"Knowledge base dated {LATER}" in cli("knowledge").out
    missing = cli("knowledge", "update", "--from", f"{served}/none.json")
    assert missing.code == 1
    assert "not found" in missing.err.lower()


def test_an_address_is_shown_without_its_secrets(cli: Rocsteady, bundle: Path, served: str) -> None:
    bundle.with_name("bad.json").write_text("{}")
    refused = cli("knowledge", "update", "--from", f"{served}/bad.json?token=hunter2-x")
    missing = cli("knowledge", "update", "--from", f"{served}/none.json?token=hunter2-x")
    with_user = served.replace("://", "://me:hunter2-x@")
    unknown = cli("knowledge", "diff", "--from", f"{with_user}/bad.json")

    for said in (refused, missing, unknown):
        assert said.code == 1
        assert "hunter2-x" not in said.out + said.err
    assert "bad.json: refused" in refused.err


def test_what_is_not_there_is_one_line(cli: Rocsteady) -> None:
    missing = cli("knowledge", "update", "--from", "none.json")

    assert (missing.code, len(missing.err.splitlines())) == (1, 1)
    assert cli("knowledge", "update").code == 2


def test_the_knowledge_in_use_is_in_order(cli: Rocsteady) -> None:
    assert cli("knowledge", "check").out == "No problems found.\n"


def test_an_author_is_told_what_is_wrong(cli: Rocsteady) -> None:
    (cli.folder / "empty").mkdir()

    shown = cli("knowledge", "check", "empty")

    assert shown.code == 1
    assert "sources.toml" in shown.out
