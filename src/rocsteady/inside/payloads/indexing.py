"""What reads and writes by index: embedding, scatter, index_add, multinomial."""

from __future__ import annotations

from .experiment import Experiment, WrongNumbers

ROWS, WIDTH, PICKED = 1000, 64, 4096
EXACT = 1e-9  # whole numbers that float32 holds: sums of them are right or wrong
DRAWN, CATEGORIES = 20_000, 16
SIGMAS = 7.0  # one category in 4e11 is further off by chance


def embedding(trial: Experiment) -> None:
    """Look up rows, many more than once, and go backward."""
    torch = trial.torch
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(ROWS, WIDTH, generator=generator)
    index = torch.randint(ROWS, (PICKED,), generator=generator)
    upstream = torch.randint(-8, 9, (PICKED, WIDTH), generator=generator).float()
    rows = table.double()[index]
    gradient = torch.zeros(ROWS, WIDTH, dtype=torch.float64)
    gradient.index_add_(0, index, upstream.double())
    table, index, upstream = (each.to(trial.device) for each in (table, index, upstream))
    table.requires_grad_()
    for _ in trial.tries():
        table.grad = None
        found = torch.nn.functional.embedding(index, table)
        found.backward(upstream)
        trial.compare(found, rows, EXACT, "rows")
        trial.compare(table.grad, gradient, EXACT, "gradient of the table")


def scatter(trial: Experiment) -> None:
    """Add at places that repeat, in two ways."""
    torch = trial.torch
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(ROWS, (PICKED,), generator=generator)
    added = torch.randint(-8, 9, (PICKED, WIDTH), generator=generator).float()
    reference = torch.zeros(ROWS, WIDTH, dtype=torch.float64)
    for place, row in zip(index.tolist(), added.double()):  # noqa: B905 - Python 3.9
        reference[place] += row
    index, added = index.to(trial.device), added.to(trial.device)
    wide = index.unsqueeze(1).expand(-1, WIDTH)
    for _ in trial.tries():
        zeros = torch.zeros(ROWS, WIDTH, device=trial.device)
        trial.compare(zeros.scatter_add(0, wide, added), reference, EXACT, "scatter_add")
        trial.compare(zeros.index_add(0, index, added), reference, EXACT, "index_add")


def multinomial(trial: Experiment) -> None:
    """Draw, and count what was drawn."""
    torch = trial.torch
    torch.manual_seed(0)
    weights = torch.arange(CATEGORIES, dtype=torch.float64)  # the first is never to be drawn
    chances = weights / weights.sum()
    spread = (DRAWN * chances * (1 - chances)).sqrt()
    given = weights.float().to(trial.device)
    for _ in trial.tries():
        drawn = torch.multinomial(given, DRAWN, replacement=True)
        counts = torch.bincount(drawn.cpu(), minlength=CATEGORIES).double()
        off = (counts - DRAWN * chances).abs() / (SIGMAS * spread.clamp(min=1e-9))
        worst = float(off.max())
        trial.worst = max(trial.worst, worst)
        if worst > 1:
            category = int(off.argmax())
            raise WrongNumbers(
                f"category {category} was drawn {int(counts[category])} times of {DRAWN},"
                f" {DRAWN * float(chances[category]):.0f} expected"
            )


def multinomial_invalid(trial: Experiment) -> None:
    """Draw with a negative weight: it must be refused, and not for ever."""
    torch = trial.torch
    weights = torch.tensor([0.5, -1.0, 0.5], device=trial.device)
    for _ in trial.tries():
        try:
            torch.multinomial(weights, 8, replacement=True)
            trial.wait()
        except RuntimeError as error:
            trial.say("refused", str(error).splitlines()[0][:200])
        else:
            if trial.device == "cpu":
                raise WrongNumbers("a negative weight was taken")
            # Builds without asserts on the device, as most for ROCm, compute something.
            trial.say("refused", "no: this build does not look")
        if trial.device != "cpu":
            trial.give_up_device()
            trial.wanted = 1
