"""Variables by which a drill keeps trackers and uploads to itself.

What they mean was read in the documentation of each, and tried with wandb 0.31, mlflow-skinny
3.17, comet_ml 3.58 and clearml 2.1. Neptune and SwanLab were not tried. Without a token nothing
can be uploaded to the Hugging Face Hub, and public models still load.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def offline(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment with trackers that write below ``folder`` and send nothing."""
    kept = {name: value for name, value in environment.items() if name not in TOKENS}
    return {
        **kept,
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "MLFLOW_TRACKING_URI": (folder / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "COMET_START_ONLINE": "0",
        "COMET_OFFLINE_DIRECTORY": str(folder),
        "CLEARML_OFFLINE_MODE": "1",
        "NEPTUNE_MODE": "offline",
        "SWANLAB_MODE": "offline",
        "HF_TOKEN_PATH": str(folder / "no-token"),
    }
