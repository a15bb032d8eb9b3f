"""``python -m rocsteady_knowledge check [FOLDER]``: what is wrong with the entries, and where."""

import sys
from pathlib import Path

USAGE = "usage: python -m rocsteady_knowledge check [FOLDER]"
NEEDS = "This needs rocsteady beside rocsteady-knowledge: pip install rocsteady"


def main(arguments: list[str]) -> int:
    """Print the problems; return 0 if there is none, 1 if there is one, 2 for wrong usage."""
    if not arguments or arguments[0] != "check" or len(arguments) > 2:  # noqa: PLR2004
        sys.stderr.write(f"{USAGE}\n")
        return 2
    try:
        from rocsteady.doctor.knowledge.check import knowledge_problems  # noqa: PLC0415
        from rocsteady.errors import KnowledgeError  # noqa: PLC0415
    except ImportError:
        sys.stderr.write(f"{NEEDS}\n")
        return 2
    try:
        found = knowledge_problems(*(Path(each).resolve() for each in arguments[1:]))
    except KnowledgeError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    sys.stdout.writelines(f"{problem}\n" for problem in found or ["No problems found."])
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
