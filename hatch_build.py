"""The checkout depends on the three packages below packages/, wherever it lies."""

from __future__ import annotations

from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PACKAGES = ("rocsteady", "rocsteady-train", "rocsteady-knowledge")


class CheckoutMetadata(MetadataHookInterface):
    """Names each package by its folder, as an installer wants it: an absolute address."""

    def update(self, metadata: dict[str, object]) -> None:
        """Add the dependencies."""
        folder = Path(self.root) / "packages"
        metadata["dependencies"] = [f"{name} @ {(folder / name).as_uri()}" for name in PACKAGES]
