"""Which errors of a save the training can go on after: those of disks and servers."""

from __future__ import annotations

# Packages whose errors come from writing or sending files, and are not all an OSError.
OF_STORAGE = frozenset(
    ("safetensors", "safetensors_rust", "huggingface_hub", "fsspec", "httpx", "httpcore",
     "requests", "urllib3", "botocore")
)  # fmt: skip
OF_TORCHS_WRITER = ("PytorchStreamWriter", "inline_container", "basic_ios::clear")
LONGEST_CHAIN = 10


def is_of_storage(error: BaseException | None) -> bool:
    """Return whether a disk or a server refused; an error of the GPU or the script is another."""
    for _ in range(LONGEST_CHAIN):
        if error is None:
            return False
        if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in OF_STORAGE:
            return True
        if isinstance(error, RuntimeError) and any(each in str(error) for each in OF_TORCHS_WRITER):
            return True
        error = error.__cause__
    return False
