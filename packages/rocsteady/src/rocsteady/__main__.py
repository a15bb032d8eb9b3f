"""The program. Its version is told before anything else is loaded."""

import os
import sys

from rocsteady import __version__

OWN = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - pathlib takes longer


def _is_here(folder: str) -> bool:
    try:
        return os.path.samefile(folder or ".", ".")  # noqa: PTH121 - no pathlib here
    except OSError:
        return False


if not _is_here(OWN):  # somebody's project: there by `python -m rocsteady`, or by PYTHONPATH=.
    sys.path[:] = [each for each in sys.path if not _is_here(each)]


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"rocsteady {__version__}\n")
        return
    from rocsteady.cli.main import main as run  # noqa: PLC0415 - it takes five times as long

    run()


if __name__ == "__main__":
    main()
