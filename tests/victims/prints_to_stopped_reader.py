"""A talkative script, whose output goes to a reader that stops reading for 60 s.

Meant for `python prints_to_stopped_reader.py | python reader_stops.py`. A person sees the output
stand still; bare, the script stands still too, in write, until the reader goes on.
"""

from __future__ import annotations

from knobs import STEPS
from ordinary import AFTERWARDS, make_loader, make_model, make_optimizer, train_step

LINES_A_STEP = 200


def main() -> None:
    model = make_model()
    optimizer = make_optimizer(model)
    for step, (x, y) in enumerate(make_loader(STEPS + AFTERWARDS)):
        loss = train_step(model, optimizer, x, y)
        for line in range(LINES_A_STEP):
            print(f"step {step} layer {line} grad norm {loss / (line + 1):.12f} {'.' * 40}")
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
