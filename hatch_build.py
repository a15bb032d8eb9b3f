"""The checkout depends on the three packages below packages/, wherever it lies."""

from __future__ import annotations

from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

# Folders have no hyphen: pip takes the last part of "rocsteady-train" for a version, keeps what it
# built there, and installs that again after the files have changed.
PACKAGES = ("rocsteady", "rocsteady_train", "rocsteady_knowledge")


class CheckoutMetadata(MetadataHookInterface):
    """Names each package by its folder, as an installer wants it: an absolute address."""

    def update(self, metadata: dict[str, object]) -> None:
        """Add the dependencies."""
        folder = Path(self.root) / "packages"
        metadata["dependencies"] = [
            f"{name.replace('_', '-')} @ {(folder / name).as_uri()}" for name in PACKAGES
        ]
