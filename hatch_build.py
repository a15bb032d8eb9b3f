"""What is installed from a checkout needs its two other packages, wherever it lies."""

from __future__ import annotations

import tomllib
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

# Folders have no hyphen: pip takes the last part of "rocsteady-train" for a version, keeps what it
# built there, and installs that again after the files have changed.
SIBLINGS = {"rocsteady-train": "rocsteady_train", "rocsteady-knowledge": "rocsteady_knowledge"}


class CheckoutMetadata(MetadataHookInterface):
    """Names each of ours by its folder, as an installer wants it: an absolute address."""

    def update(self, metadata: dict[str, object]) -> None:
        """Add the dependencies."""
        packages = Path(self.root) / "packages"
        published = tomllib.loads((packages / "rocsteady/pyproject.toml").read_text("utf-8"))
        metadata["dependencies"] = [
            each
            for each in published["project"]["dependencies"]
            if not each.startswith(tuple(SIBLINGS))
        ] + [f"{name} @ {(packages / folder).as_uri()}" for name, folder in SIBLINGS.items()]
