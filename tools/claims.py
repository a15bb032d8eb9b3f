"""Write docs/claims.md from docs/claims.toml and the knowledge base's sources.

python tools/claims.py
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.doctor.knowledge.values import Source

DOCS = Path(__file__).resolve().parents[1] / "docs"
HEAD = """# Claims you will read, and what is known of them

For you who are about to follow one. Each was checked against the sources named; "unproven" means
that we found no source either way. None was confirmed on AMD hardware by us. Made from
`claims.toml` by `tools/claims.py`.

| claim | verdict | what is known | sources | checked |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the page."""
    claims = tomllib.loads((DOCS / "claims.toml").read_text("utf-8"))["claim"]
    sources = load_knowledge().sources
    return HEAD + "".join(_row(claim, sources) for claim in claims)


def _row(claim: dict[str, Any], sources: dict[str, Source]) -> str:
    links = ", ".join(_link(sources[key]) for key in claim["sources"])
    return (
        f"| {claim['claim']} | **{claim['verdict']}** | {claim['answer']} | {links}"
        f" | {claim['date']} |\n"
    )


def _link(source: Source) -> str:
    number = f"#{source.number}" if source.number else ""
    name = f"{source.name}{number}"
    return f"[{name}]({source.url})" if source.url else name


if __name__ == "__main__":
    (DOCS / "claims.md").write_text(page(), encoding="utf-8")
