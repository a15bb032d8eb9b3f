"""A `breakpoint()` in mid-training waits for somebody to type `c`.

A person sees the debugger's prompt and looks around for as long as they like.
"""

from __future__ import annotations

from knobs import STEPS
from ordinary import AFTERWARDS, make_loader, make_model, make_optimizer, train


def look_around(step: int) -> int:
    breakpoint()  # noqa: T100 (what this is about)
    return step


def main() -> None:
    model = make_model()
    optimizer = make_optimizer(model)
    step = look_around(train(model, optimizer, make_loader(STEPS)))
    train(model, optimizer, make_loader(AFTERWARDS), step)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
