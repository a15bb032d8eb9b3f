"""A regular expression that backtracks for ever in C, over one caption that it does not match.

A person sees the loss lines stop and one core busy, always at the same line. From outside it is
the same as one long native operation.
"""

from __future__ import annotations

import re

from knobs import STEPS
from ordinary import make_loader, make_model, make_optimizer, train

WORDS = re.compile(r"(\w+\s*)+\.$")  # the mistake: 2 to the power of the length ways to match


def clean_caption(caption: str) -> str:
    return caption if WORDS.match(caption) else ""


def main() -> None:
    model = make_model()
    train(model, make_optimizer(model), make_loader(STEPS))
    clean_caption("a" * 80 + "!")


if __name__ == "__main__":
    main()
