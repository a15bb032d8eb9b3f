"""Join the issues that upstream itself has marked with the numbers that our entries cite.

    python tools/watch_issues.py            see tools/watch.py for the options

An open issue needs an entry that cites it, or a line under [left_out] of upstream.toml; a closed
one that a rule cites, an upper bound of that rule. TheRock marks what AMD has verified, PyTorch
what it calls urgent on ROCm. Reads GitHub's interface, the hundred that changed last of each.
"""

from __future__ import annotations

import json
import sys

from watch import Watch, run

QUERY = "state=all&sort=updated&per_page=100"
LABELS = {
    "ROCm/TheRock": ["Verified%20Issue"],
    "pytorch/pytorch": ["module%3A%20rocm%2Chigh%20priority"],
}


def address(repository: str, labels: str) -> str:
    return f"https://api.github.com/repos/{repository}/issues?labels={labels}&{QUERY}"


def look(watch: Watch) -> None:
    cited = watch.citing()
    for repository, labels in LABELS.items():
        for label in labels:
            page = watch.page(address(repository, label))
            try:
                listed = json.loads(page or "[]")
            except ValueError as error:
                watch.failed.append(f"{address(repository, label)}: {error}")
                continue
            for issue in listed:
                name = f"{repository}#{issue['number']}"
                if "pull_request" in issue:
                    continue
                if issue["state"] == "closed":
                    watch.resolved(name, "closed")
                elif name not in cited:
                    watch.unknown(name, "open", issue["title"])
                watch.at = max(watch.at, issue["updated_at"][:10])


if __name__ == "__main__":
    sys.exit(run("issues", look))
