"""Addresses of a job file: what is none is found before a run starts."""

from __future__ import annotations

import pytest

from rocsteady.run.job.notify import host_of


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://hooks.example.org/x", "hooks.example.org"),
        ("http://127.0.0.1:4318", "127.0.0.1"),
        ("http://127.0.0.1:abc", ""),
        ("http://127.0.0.1:99999/x", ""),
        ("ftp://a.example", ""),
        ("http://[::1", ""),
        ("", ""),
    ],
)
def test_only_an_address_of_the_web_has_a_host(address: str, host: str) -> None:
    assert host_of(address) == host
