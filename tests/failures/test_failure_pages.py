"""The pages about failures: one each, found by its message, with what to do."""

from __future__ import annotations

from failure_pages import NO_PAGE, files

from rocsteady.doctor.knowledge.failures import load_failures


def test_each_failure_has_a_page_with_its_message_and_what_to_do() -> None:
    knowledge = load_failures()
    pages = dict(files(knowledge))

    assert {f"{kind}.md" for kind in knowledge.kinds if kind not in NO_PAGE} == pages.keys() - {
        "index.md"
    }
    assert pages["memory-access-fault.md"].startswith(
        "# A GPU kernel accessed invalid memory: Memory access fault by GPU"
    )
    assert pages["hang-in-loader.md"].startswith("# Hung waiting for data\n")  # it prints nothing
    assert "no-code-for-gpu.md" in pages["index.md"]
    for name, page in pages.items():
        if name != "index.md":
            steps = page.partition("## What to do")[2]
            assert "**1.**" in steps or "`rocsteady run` can try" in steps, name
            assert f"rocsteady explain {name.removesuffix('.md')}" in steps
            assert "Traceback" not in page.partition("\n")[0]
