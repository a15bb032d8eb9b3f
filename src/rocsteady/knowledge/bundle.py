"""A signed bundle: all rules, tables and failures in one JSON file. It is data, and never executed.

The file names its format, schema and day, and holds the content as text with its SHA-256. The
signature is over these lines, so that nothing of the content is decoded before it is known whose it
is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection

import msgspec

from rocsteady.errors import KnowledgeError
from rocsteady.knowledge.ed25519 import verify
from rocsteady.knowledge.edition import Edition
from rocsteady.knowledge.failures import FailureKnowledge
from rocsteady.knowledge.reader import Knowledge
from rocsteady.model import Value

FORMAT = "rocsteady-knowledge"
SCHEMA = 1
# Whose bundles are accepted by everybody; others are added by a file in the user's configuration.
PINNED = ("ILiGvnOBWWVy6bKRA4IGsqgRHwTJ4eigR7YYtcZzGK0=",)


class Bundle(Value, frozen=True, kw_only=True):
    """The file."""

    format: str
    schema: int
    date: str
    sha256: str  # of the content, in hexadecimal
    signature: str  # Ed25519 over signed_text, in base64
    content: str  # JSON of a BundleContent


class KnowledgePart(Value, frozen=True, kw_only=True):
    """What the doctor takes from a bundle's content; the rest is passed over, which is fast."""

    edition: Edition
    knowledge: Knowledge


class FailurePart(Value, frozen=True, kw_only=True):
    """What a run takes from it."""

    edition: Edition
    failures: FailureKnowledge


class BundleContent(KnowledgePart, frozen=True, kw_only=True):
    """What a bundle brings."""

    failures: FailureKnowledge


def open_bundle(raw: bytes, keys: Collection[str], *, not_before: str) -> BundleContent:
    """Return the content of a bundle, or refuse it and say why."""
    try:
        bundle = msgspec.json.decode(raw, type=Bundle)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KnowledgeError(f"not a whole bundle: {error}") from None
    if bundle.format != FORMAT:
        raise KnowledgeError(f"not a bundle of {FORMAT}")
    if bundle.schema != SCHEMA:
        raise KnowledgeError(
            f"schema {bundle.schema}, and this rocsteady reads {SCHEMA}; update rocsteady first"
        )
    _refuse_foreign(bundle, keys)
    if bundle.date < not_before:
        raise KnowledgeError(f"older ({bundle.date}) than the knowledge in use ({not_before})")
    try:
        content = msgspec.json.decode(bundle.content, type=BundleContent)
    except (msgspec.DecodeError, RecursionError) as error:
        raise KnowledgeError(f"content: {error}") from None
    if content.edition.date != bundle.date:
        raise KnowledgeError("content: its date is not that of the bundle")
    return content


def _refuse_foreign(bundle: Bundle, keys: Collection[str]) -> None:
    """Refuse what was changed, and what nobody signed whom we know."""
    if hashlib.sha256(bundle.content.encode()).hexdigest() != bundle.sha256:
        raise KnowledgeError("the content does not fit its SHA-256: damaged or changed")
    try:
        signature = base64.b64decode(bundle.signature, validate=True)
        known = [base64.b64decode(key, validate=True) for key in keys]
    except (binascii.Error, ValueError):
        raise KnowledgeError("a signature or key that is not base64") from None
    signed = signed_text(bundle)
    if not any(verify(key, signed, signature) for key in known):
        raise KnowledgeError("not signed by a key that is accepted here")


def signed_text(bundle: Bundle) -> bytes:
    """Return what the signature is over."""
    return f"{bundle.format}\n{bundle.schema}\n{bundle.date}\n{bundle.sha256}\n".encode()
