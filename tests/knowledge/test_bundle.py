"""Signed bundles: what is accepted, what is refused, and that the old knowledge then stays."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from rocsteady.errors import KnowledgeError
from rocsteady.knowledge import ed25519
from rocsteady.knowledge.bundle import (
    FORMAT,
    PINNED,
    SCHEMA,
    Bundle,
    BundleContent,
    open_bundle,
    signed_text,
)
from rocsteady.knowledge.edition import load_edition
from rocsteady.knowledge.failures import load_failures
from rocsteady.knowledge.reader import load_knowledge
from rocsteady.knowledge.store import INSTALLED, Places, failures_in_use, in_use
from rocsteady.workflows.knowledge_update import fetch_bundle, install

SECRET, OTHER = bytes(range(32)), bytes(32)
KEY = base64.b64encode(ed25519.public_key(SECRET)).decode()
LATER = "2027-03-01"
# RFC 8032, section 7.1: secret key, public key, message, signature
VECTORS = (
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bac"
            "c61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e"
            "458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290"
            "ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
)


@pytest.mark.parametrize("vector", VECTORS)
def test_signatures_are_those_of_the_rfc(vector: tuple[str, str, str, str]) -> None:
    secret, public, message, signature = map(bytes.fromhex, vector)

    assert ed25519.public_key(secret) == public
    assert ed25519.sign(secret, message) == signature
    assert ed25519.verify(public, message, signature)


def test_one_bit_anywhere_spoils_a_signature() -> None:
    public, message = ed25519.public_key(SECRET), b"knowledge"
    signature = ed25519.sign(SECRET, message)

    for place in range(64):
        spoilt = bytearray(signature)
        spoilt[place] ^= 1
        assert not ed25519.verify(public, message, bytes(spoilt))
    assert not ed25519.verify(public, b"Knowledge", signature)
    assert not ed25519.verify(ed25519.public_key(OTHER), message, signature)
    high = int.from_bytes(signature[32:], "little") + ed25519.ORDER
    assert not ed25519.verify(public, message, signature[:32] + high.to_bytes(32, "little"))
    assert not ed25519.verify(public, message, signature[:-1])
    assert not ed25519.verify(b"\xff" * 32, message, signature)


@pytest.fixture(scope="module")
def content() -> BundleContent:
    knowledge = load_knowledge()
    rule = knowledge.rules["caching-off"]
    new = msgspec.structs.replace(rule, id="brand-new", title="Something that is new")
    return BundleContent(
        edition=msgspec.structs.replace(load_edition(), date=LATER),
        knowledge=msgspec.structs.replace(knowledge, rules={**knowledge.rules, new.id: new}),
        failures=load_failures(),
    )


def bundled(content: BundleContent, secret: bytes = SECRET, **changes: object) -> bytes:
    """Sign a content; ``changes`` are made to the bundle before it is signed."""
    text = msgspec.json.encode(content).decode()
    unsigned = Bundle(
        format=FORMAT,
        schema=SCHEMA,
        date=content.edition.date,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        signature="",
        content=text,
    )
    unsigned = msgspec.structs.replace(unsigned, **changes)
    signature = base64.b64encode(ed25519.sign(secret, signed_text(unsigned))).decode()
    return msgspec.json.encode(msgspec.structs.replace(unsigned, signature=signature))


@pytest.fixture
def where(tmp_path: Path) -> Places:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/keys.txt").write_text(f"# ours\n{KEY}\n")
    return Places(tmp_path / "data", tmp_path / "config")


def test_a_bundle_is_installed_and_used(
    content: BundleContent, where: Places, tmp_path: Path
) -> None:
    (tmp_path / "new.json").write_bytes(bundled(content))

    install(fetch_bundle(str(tmp_path), where, not_before="2026-01-01"), where)
    used = in_use(where)

    assert used.installed
    assert used.edition.date == LATER
    assert used.knowledge.rules["brand-new"].title == "Something that is new"
    assert used.knowledge == content.knowledge
    assert failures_in_use(where) == content.failures


def swapped(raw: bytes) -> bytes:
    return raw.replace(b"brand-new", b"brand-old")


REFUSED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "changed": (swapped, "SHA-256"),
    "truncated": (lambda raw: raw[: len(raw) // 2], "not a whole bundle"),
    "empty": (lambda _: b"", "not a whole bundle"),
    "of another program": (lambda raw: raw.replace(FORMAT.encode(), b"x", 1), "not a bundle"),
    "of another day": (lambda raw: raw.replace(LATER.encode(), b"2027-03-02", 1), "not signed"),
    "with another signature": (
        lambda raw: raw.replace(b'"signature":"', b'"signature":"AAAA'),
        "not signed",
    ),
    "binary": (lambda _: b"\x80\x04\x95pickle", "not a whole bundle"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_bundle_that_is_not_in_order_is_refused_and_the_old_one_stays(
    content: BundleContent, where: Places, tmp_path: Path, kind: str
) -> None:
    install(content, where)
    before = (where.data / INSTALLED).read_bytes()
    spoil, says = REFUSED[kind]
    (tmp_path / "bad.json").write_bytes(spoil(bundled(content)))

    with pytest.raises(KnowledgeError, match=f"refused: .*{says}"):
        fetch_bundle(str(tmp_path / "bad.json"), where, not_before="2026-01-01")

    assert (where.data / INSTALLED).read_bytes() == before
    assert in_use(where).edition.date == LATER


def test_an_older_a_foreign_and_a_future_bundle_are_refused(content: BundleContent) -> None:
    whole = bundled(content)

    with pytest.raises(KnowledgeError, match="older"):
        open_bundle(whole, [KEY], not_before="2027-03-02")
    with pytest.raises(KnowledgeError, match="not signed by a key"):
        open_bundle(bundled(content, OTHER), [KEY], not_before="")
    with pytest.raises(KnowledgeError, match="not signed by a key"):
        open_bundle(whole, PINNED, not_before="")
    with pytest.raises(KnowledgeError, match="update rocsteady first"):
        open_bundle(bundled(content, schema=2), [KEY], not_before="")
    with pytest.raises(KnowledgeError, match="not that of the bundle"):
        open_bundle(bundled(content, date="2028-01-01"), [KEY], not_before="")


def test_a_signed_bundle_with_a_wrong_entry_is_refused(
    content: BundleContent, where: Places, tmp_path: Path
) -> None:
    rule = msgspec.structs.replace(content.knowledge.rules["brand-new"], sources=("no-such",))
    wrong = msgspec.structs.replace(
        content, knowledge=msgspec.structs.replace(content.knowledge, rules={rule.id: rule})
    )
    (tmp_path / "wrong.json").write_bytes(bundled(wrong))

    with pytest.raises(KnowledgeError, match="brand-new: sources: 'no-such' is not in"):
        fetch_bundle(str(tmp_path / "wrong.json"), where, not_before="")


def test_what_is_installed_and_cannot_be_read_is_not_used_and_that_is_said(where: Places) -> None:
    where.data.mkdir()
    (where.data / INSTALLED).write_bytes(b"{")

    used = in_use(where)

    assert not used.installed
    assert INSTALLED in used.complaint
    assert used.knowledge.rules


def test_a_package_that_is_newer_than_the_bundle_wins(
    content: BundleContent, where: Places
) -> None:
    old = msgspec.structs.replace(content.edition, date="2020-01-01")
    install(msgspec.structs.replace(content, edition=old), where)

    assert in_use(where).edition == load_edition()


OWN = """
[sources.ours]
owner = "lab"
name = "notes"
title = "What we saw"
date = "2026-11"
[[variable]]
name = "LAB_SWITCH"
read_by = "our wrapper"
meaning = "Chooses the queue."
sources = ["ours"]
[[rule]]
id = "lab-switch"
title = "LAB_SWITCH is set"
severity = "notes"
summary = "{set} is set."
why = "It is ours."
confidence = "community"
sources = ["ours"]
confirmed_on = []
when = { fact = "variable:LAB_SWITCH", present = true }
fix = { text = "Ask the lab." }
"""


def test_entries_of_ones_own_are_loaded_beside_it(where: Places) -> None:
    (where.config / "lab.toml").write_text(OWN)

    used = in_use(where)

    assert used.own == 2
    assert used.knowledge.rules["lab-switch"].sources == ("ours",)
    assert "caching-off" in used.knowledge.rules


def test_a_wrong_entry_of_ones_own_is_named(where: Places) -> None:
    (where.config / "lab.toml").write_text(OWN.replace('sources = ["ours"]', "sources = []"))

    used = in_use(where)

    assert "lab-switch: sources: every rule has one" in used.complaint
    assert str(where.config) in used.complaint
    assert used.own == 0
    assert "caching-off" in used.knowledge.rules
