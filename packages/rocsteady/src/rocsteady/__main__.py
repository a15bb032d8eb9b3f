"""The program. Its version is told before anything else is loaded."""

import sys

from rocsteady import __version__

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # of `python -m rocsteady`: the folder of somebody's project


def main() -> None:
    """Run the command."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"rocsteady {__version__}\n")
        return
    from rocsteady.cli.main import main as run  # noqa: PLC0415 - it takes five times as long

    run()


if __name__ == "__main__":
    main()
