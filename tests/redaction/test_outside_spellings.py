"""Spellings of secrets that somebody found readable from outside."""

from __future__ import annotations

import pytest

from rocsteady.redaction.redactor import Secrets
from rocsteady.terminal.screen import json_text

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
