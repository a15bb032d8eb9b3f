"""The program. Its version is told before anything else is loaded."""

import sys

from rocsteady import __version__


def main() -> None:
    """Run the command."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"rocsteady {__version__}\n")
        return
    from rocsteady.cli.main import main as run  # noqa: PLC0415 - it takes five times as long

    run()


if __name__ == "__main__":
    main()
