"""Makes a signed bundle of the knowledge in this repository. Not part of the package.

    python tools/knowledge_bundle.py --new-key KEYFILE        prints the public key
    python tools/knowledge_bundle.py --key KEYFILE OUT.json   signs src/rocsteady/knowledge/data

The key file is a secret: 32 bytes in base64, readable by its owner only. It is kept outside the
repository. The public key goes into ``PINNED`` of ``knowledge/bundle.py``.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import secrets
from pathlib import Path

import msgspec

from rocsteady.doctor.diagnosis import CHECKS
from rocsteady.doctor.facts import FACTS
from rocsteady.knowledge.bundle import FORMAT, SCHEMA, Bundle, BundleContent, signed_text
from rocsteady.knowledge.ed25519 import public_key, sign
from rocsteady.knowledge.edition import load_edition
from rocsteady.knowledge.failures import load_failures
from rocsteady.knowledge.reader import DATA, load_knowledge


def new_key(path: Path) -> str:
    """Write a new secret key to a file that must not exist, and return its public key."""
    secret = secrets.token_bytes(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(base64.b64encode(secret) + b"\n")
    return base64.b64encode(public_key(secret)).decode()


def bundle(content: BundleContent, secret: bytes) -> bytes:
    """Sign a content."""
    text = msgspec.json.encode(content).decode()
    unsigned = Bundle(
        format=FORMAT,
        schema=SCHEMA,
        date=content.edition.date,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        signature="",
        content=text,
    )
    signature = base64.b64encode(sign(secret, signed_text(unsigned))).decode()
    return msgspec.json.encode(msgspec.structs.replace(unsigned, signature=signature))


def content_of(folder: Path) -> BundleContent:
    """Read a folder laid out as the package's."""
    return BundleContent(
        edition=load_edition(folder),
        knowledge=load_knowledge(folder, facts=FACTS, checks=CHECKS),
        failures=load_failures(folder),
    )


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--new-key", type=Path, metavar="KEYFILE")
    parser.add_argument("--key", type=Path, metavar="KEYFILE")
    parser.add_argument("out", type=Path, nargs="?")
    given = parser.parse_args()
    if given.new_key:
        print(new_key(given.new_key))  # noqa: T201 - what was asked for
    elif given.key and given.out:
        secret = base64.b64decode(given.key.read_bytes())
        given.out.write_bytes(bundle(content_of(DATA), secret))
    else:
        parser.error("either --new-key KEYFILE, or --key KEYFILE OUT")


if __name__ == "__main__":
    main()
