"""Spellings of secrets that somebody found readable from outside."""

from __future__ import annotations

import pytest

from rocsteady.screens.screen import json_text
from rocsteady.store.redaction.redactor import Secrets, hide_secrets

VALUE = "Zq148vXk9Lm4Tr8Wp"


@pytest.mark.parametrize(
    "text",
    [
        "AuthenticationError: Incorrect API key provided: {}.",
        "ValueError: bad token provided {}",
        "passWord={}",
        "--PassPhrase {}",
        '{{"passWord":"{}"}}',
        "--otp {}",
        "--jwt {}",
    ],
)
def test_the_value_is_hidden(text: str) -> None:
    told = Secrets().text(text.format(VALUE))

    assert VALUE not in told
    assert "<redacted>" in told


@pytest.mark.parametrize("text", ["pass 3 of 4", "the key provided by the user", "compass word 12"])
def test_ordinary_sentences_stay(text: str) -> None:
    assert Secrets().text(text) == text


def test_bytes_that_are_no_text_do_not_break_json() -> None:
    assert json_text({"command": ["caf\udce9"]}, indent=0) == '{"command":["caf\\\\xe9"]}\n'


@pytest.mark.parametrize("stamp", ["2026-11-16T22:54:52.123Z ", "22:54:52 "])
def test_the_times_before_lines_of_a_log_hide_nothing_that_stands_below_its_name(
    stamp: str,
) -> None:
    lines = ["password: |", "  Mm7yamlPw1", "passwords:", "  - Mp7listPwA", "--password", "Ml7cli9"]
    log = "\n".join(f"{stamp}{line}" for line in [*lines, "loss 0.3"])

    for redact in (Secrets().text, hide_secrets):
        told = redact(log)
        assert not any(secret in told for secret in ("Mm7yamlPw1", "Mp7listPwA", "Ml7cli9"))
        assert told.count(stamp) == len(lines) + 1
        assert told.endswith("loss 0.3")
