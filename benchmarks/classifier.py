"""How fast a log is read for the name of its failure.

    python benchmarks/classifier.py

A mebibyte of ordinary training output that ends by an error, the same of lines that look like
errors, and texts made to be slow: one endless line, words of every signature, tracebacks without
end. The exit code says whether ordinary output is below the limit.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms

SIZE = 1 << 20
LIMIT = 0.1  # seconds for ordinary output
ROUNDS = 7
END = """Traceback (most recent call last):
  File "/home/user/train.py", line 52, in train
    loss.backward()
torch.OutOfMemoryError: HIP out of memory. Tried to allocate 124.00 MiB. GPU 0 has a total capacity of 19.94 GiB of which 554.47 MiB is free. Of the allocated memory 15.87 GiB is allocated by PyTorch, and 165.29 MiB is reserved by PyTorch but unallocated.
"""  # noqa: E501 - as PyTorch prints it


def ordinary() -> str:
    """Return progress bars, log lines and metrics."""
    chance = random.Random(0)  # noqa: S311 - a log, not a secret
    makers: list[Callable[[], str]] = [
        lambda: (
            f"Epoch 3:  34%|###4      | {chance.randrange(7500)}/7500 [17:52<34:12, 2.40it/s]\r"
        ),
        lambda: (
            f"2026-01-14 10:00:{chance.randrange(60):02} INFO step {chance.randrange(9**6)} loss"
            f" {chance.random():.4f} lr 1.2e-05 grad_norm 0.8\n"
        ),
        lambda: f"{{'loss': {chance.random():.4f}, 'epoch': {chance.random():.2f}}}\n",
    ]
    return "".join(chance.choice(makers)() for _ in range(SIZE // 60))[:SIZE] + f"\n{END}"


def like_errors() -> str:
    """Return warnings that mean nothing, over and over."""
    lines = (
        "MIOpen(HIP): Warning [SQLiteBase] Missing system database file: gfx1030.kdb",
        "UserWarning: Flash attention kernel not used because: no error was given",
        "Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError'",
        "nan values in column 3, 12 rows killed, 0 GPU errors, memory 4.2 of 20.0 GiB",
    )
    return "\n".join(itertools.islice(itertools.cycle(lines), SIZE // 76))


def all_words() -> str:
    """Return every sample of every signature, over and over."""
    samples = "\n".join(it.sample for it in load_failures().signatures)
    return (samples * (SIZE // len(samples) + 1))[:SIZE]


TEXTS: dict[str, Callable[[], str]] = {
    "ordinary, ends by an error": ordinary,
    "lines that look like errors": like_errors,
    "all samples, again and again": all_words,
    "the same on one line": lambda: all_words().replace("\n", " "),
    "tracebacks without end": lambda: (END * (SIZE // len(END) + 1))[:SIZE],
    "one endless word": lambda: "a" * SIZE,
    "one endless error": lambda: ("Error: loss_loss/" * SIZE)[:SIZE],
}


def main() -> None:
    """Print the best of several rounds of each text."""
    classifier = Classifier(load_failures())
    times = {}
    for name, make in TEXTS.items():
        symptoms = Symptoms(log=make(), exit_code=1)
        rounds, kind = [], ""
        for _ in range(ROUNDS):
            start = time.process_time()
            kind = classifier.name(symptoms).kind
            rounds.append(time.process_time() - start)
        times[name] = min(rounds)
        print(f"{name:<32} {min(rounds) * 1000:7.1f} ms a mebibyte   {kind}")
    ours = times["ordinary, ends by an error"]
    print(
        f"at most {LIMIT * 1000:.0f} ms is wanted of ordinary output; it took {ours * 1000:.1f} ms"
    )
    sys.exit(0 if ours <= LIMIT else 1)


if __name__ == "__main__":
    main()
