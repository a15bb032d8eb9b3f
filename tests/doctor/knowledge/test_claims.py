"""The page of claims is made of its data, and each claim has a verdict and a source."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from rocsteady.doctor.knowledge.reader import Knowledge

ROOT = Path(__file__).resolve().parents[3]
CLAIMS = tomllib.loads((ROOT / "docs" / "claims.toml").read_text("utf-8"))["claim"]


def test_there_are_fifty_claims_each_once() -> None:
    assert len({claim["claim"] for claim in CLAIMS}) == len(CLAIMS) >= 50


def test_each_has_a_verdict_and_sources_that_exist(knowledge: Knowledge) -> None:
    for claim in CLAIMS:
        assert claim["verdict"] in {"true", "partly", "false", "outdated", "unproven"}, claim
        assert claim["answer"].endswith(".")
        assert claim["sources"]
        assert set(claim["sources"]) <= set(knowledge.sources), claim


def test_the_page_is_the_one_that_is_made_of_them() -> None:
    code = "import runpy; print(runpy.run_path('tools/claims.py')['page'](), end='')"
    made = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout

    assert (ROOT / "docs" / "claims.md").read_text("utf-8") == made
