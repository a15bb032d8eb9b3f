"""``python -m rocsteady``."""

from rocsteady.cli.main import main

main()
