"""The gradient of the parts is that of the whole.

How near: a gradient is a sum over the batch, and each order of adding rounds otherwise, by some eps
of the sizes of what is added. So the difference may be 4 * eps * the sum over samples of the sizes
of their gradients, at its largest in each parameter. It is the same in float64 and in float32.
"""

from __future__ import annotations

import collections
import itertools
import random
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import rocsteady_train
import torch
from rocsteady_train.loop.micro_batches import MicroBatches, Reduction, cut, samples_in, split
from torch import nn

BATCH, WIDTH, WORDS, LENGTH, PADDING = 37, 24, 19, 11, -100
SIZES = (1, 2, 8, 36)
Pair = collections.namedtuple("Pair", ["inputs", "labels"])  # noqa: PYI024 - as scripts have it


class Encoding(collections.UserDict):  # as of a tokenizer, with methods that scripts call
    @property
    def inputs(self) -> torch.Tensor:
        return self["inputs"]


def model(kind: torch.dtype) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(WIDTH, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 5)
    ).to(kind)


def batch(kind: torch.dtype, count: int = BATCH) -> Pair:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(count, WIDTH, generator=generator, dtype=torch.float64).to(kind)
    return Pair(inputs, torch.randint(0, 5, (count,), generator=generator))


def gradients(net: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in net.parameters()]


def bare(net: nn.Module, data: Any, compute: Callable[[Any], Any]) -> list[torch.Tensor]:
    net.zero_grad()
    compute(data).backward()
    return gradients(net)


def in_parts(
    net: nn.Module, data: Any, compute: Callable[[Any], Any], size: int, **said: Any
) -> list[torch.Tensor]:
    net.zero_grad()
    parts = MicroBatches(net, size)
    loss = parts.backward(data, compute, zero=net.zero_grad, **said)
    assert parts.trained == (samples_in(data), min(size, samples_in(data)))
    whole = compute(data).detach()
    assert torch.allclose(loss, whole, rtol=100 * torch.finfo(whole.dtype).eps)
    return gradients(net)


def far(  # noqa: PLR0913 - what is compared
    net: nn.Module,
    data: Any,
    compute: Callable[[Any], Any],
    size: int,
    *,
    reduction: Reduction = "mean",
    count: Callable[[Any], float] | None = None,
) -> float:
    """Return the largest difference, as a share of the one that is allowed."""
    whole = bare(net, data, compute)
    parts = in_parts(net, data, compute, size, reduction=reduction, count=count)
    added = [torch.zeros_like(one) for one in whole]
    for start, end, weight in split(data, samples_in(data), 1, reduction, count):
        sample = bare(net, cut(data, start, end), compute)
        added = [a + (weight * s).abs() for a, s in zip(added, sample, strict=True)]
    worst = 0.0
    for one, other, sizes in zip(whole, parts, added, strict=True):
        allowed = 4 * torch.finfo(one.dtype).eps * sizes.max().item()
        worst = max(worst, (one - other).abs().max().item() / allowed)
    assert worst <= 1, worst
    return round(worst, 3)


def losses_of_samples(reduction: Reduction, kind: torch.dtype) -> dict[str, float]:
    net, data = model(kind), batch(kind)
    criterion = nn.CrossEntropyLoss(reduction=reduction)
    return {
        f"parts of {size}": far(
            net,
            data,
            lambda part: criterion(net(part.inputs), part.labels),
            size,
            reduction=reduction,
        )
        for size in SIZES
    }


def case_mean_float64() -> dict[str, float]:
    return losses_of_samples("mean", torch.float64)


def case_sum_float64() -> dict[str, float]:
    return losses_of_samples("sum", torch.float64)


def case_mean_float32() -> dict[str, float]:
    return losses_of_samples("mean", torch.float32)


def case_sum_float32() -> dict[str, float]:
    return losses_of_samples("sum", torch.float32)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.words(words)))


def padded() -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    labels = torch.randint(0, WORDS, (BATCH, LENGTH))
    for number in range(BATCH):
        labels[number, 1 + number % LENGTH :] = PADDING
    return {"inputs": torch.randint(0, WORDS, (BATCH, LENGTH)), "labels": labels}


def tokens(part: Mapping[str, torch.Tensor]) -> float:
    return (part["labels"] != PADDING).sum().item()


def token_mean(net: nn.Module) -> Callable[[Mapping[str, torch.Tensor]], torch.Tensor]:
    criterion = nn.CrossEntropyLoss(ignore_index=PADDING)
    return lambda part: criterion(net(part["inputs"]).flatten(0, 1), part["labels"].flatten())


def case_mean_over_tokens_that_are_counted() -> dict[str, float]:
    torch.manual_seed(4)
    net, data = Words().double(), padded()
    return {
        f"parts of {size}": far(net, data, token_mean(net), size, count=tokens) for size in SIZES
    }


def case_a_part_of_padding_only_adds_nothing() -> None:
    torch.manual_seed(4)
    net, data = Words().double(), padded()
    data["labels"][8:16] = PADDING
    data["labels"][32:] = PADDING  # the last part too
    for size in (1, 8):
        far(net, data, token_mean(net), size, count=tokens)


def case_a_batch_without_terms_is_trained_whole() -> None:
    net, data = Words(), padded()
    data["labels"][:] = PADDING
    criterion = nn.CrossEntropyLoss(ignore_index=PADDING, reduction="sum")
    compute = lambda part: (  # noqa: E731
        criterion(net(part["inputs"]).flatten(0, 1), part["labels"].flatten())
        / max(tokens(part), 1)
    )
    net.zero_grad()
    parts = MicroBatches(net, 8)
    loss = parts.backward(data, compute, reduction="mean", count=tokens, zero=net.zero_grad)
    assert loss == 0
    assert parts.trained == (BATCH, BATCH)


def case_batches_of_every_shape() -> list[str]:
    net = model(torch.float64)
    inputs, labels = batch(torch.float64)
    texts = [str(number) for number in range(BATCH)]
    shapes: dict[str, tuple[Any, Callable[[Any], tuple[torch.Tensor, torch.Tensor]]]] = {
        "tuple": ((inputs, labels), lambda part: part),
        "list": ([inputs, labels], lambda part: part),
        "dict": ({"x": inputs, "y": labels}, lambda part: (part["x"], part["y"])),
        "namedtuple": (Pair(inputs, labels), lambda part: (part.inputs, part.labels)),
        "of its own": (
            Encoding(inputs=inputs, labels=labels),
            lambda part: (part.inputs, part["labels"]),
        ),
        "default": (
            collections.defaultdict(list, x=inputs, y=labels),
            lambda part: (part["x"], part["y"]),
        ),
        "nested": ({"a": [inputs, {"b": labels}]}, lambda part: (part["a"][0], part["a"][1]["b"])),
        "numbers": ((inputs, labels, 0.5, torch.tensor(2.0)), lambda part: part[:2]),
        "NumPy": ((inputs.numpy(), labels.numpy()), lambda part: tuple(map(torch.tensor, part))),
        "texts": (
            (inputs, texts),
            lambda part: (part[0], torch.tensor([int(text) % 5 for text in part[1]])),
        ),
        "names of classes": ((inputs, labels, ["a", "b", "c"]), lambda part: part[:2]),
    }
    for name, (data, take) in shapes.items():

        def compute(part: Any, name: str = name, data: Any = data, take: Any = take) -> Any:
            assert type(part) is type(data)
            if name == "numbers":
                assert (part[2], part[3].item()) == (0.5, 2.0)
            if name == "names of classes":
                assert part[2] == ["a", "b", "c"]
            x, y = take(part)
            return nn.functional.cross_entropy(net(x), y)

        far(net, data, compute, 8)
    return list(shapes)


def case_one_part_is_the_bare_computation_to_the_bit() -> None:
    for part in (None, BATCH, 1000):
        net, data = model(torch.float32), batch(torch.float32)
        net.insert(1, nn.Dropout(0.3))
        compute = lambda part: nn.functional.cross_entropy(net(part[0]), part[1])  # noqa: B023, E731
        torch.manual_seed(5)
        expected = bare(net, data, compute)
        torch.manual_seed(5)
        net.zero_grad()
        MicroBatches(net, part).backward(data, compute, reduction="mean", zero=net.zero_grad)
        assert all(torch.equal(a, b) for a, b in zip(expected, gradients(net), strict=True))


def trained(
    part: int | None,
    *,
    clip_norm: float | None = None,
    scaled: bool = False,
    kind: torch.dtype = torch.float64,
) -> dict[str, torch.Tensor]:
    net = model(kind)
    data = batch(kind, 3 * BATCH + 5)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(*data), batch_size=BATCH, shuffle=True
    )
    torch.manual_seed(6)
    random.seed(6)
    with tempfile.TemporaryDirectory() as folder:
        loop = rocsteady_train.Loop(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
            scaler=torch.amp.GradScaler("cpu", init_scale=2.0**10) if scaled else None,
            loader=loader,
            epochs=3,
            checkpoints=folder,
            micro_batch=part,
        )
        for some in loop:
            loop.step(
                some,
                lambda part: nn.functional.cross_entropy(net(part[0]), part[1]),
                reduction="mean",
                clip_norm=clip_norm,
            )
        assert loop.steps == 12
    return net.state_dict()


def near(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], by: float) -> float:
    worst = max((one[name] - other[name]).abs().max().item() for name in one)
    assert worst <= by, worst
    return worst


def case_loop_with_grad_scaler_and_clipping() -> dict[str, float]:
    """Weights after 12 steps; a gradient scaled by a power of two is the same gradient."""
    told = {}
    for scaled, clip_norm in itertools.product((False, True), (None, 0.05)):
        whole = trained(None, clip_norm=clip_norm, scaled=scaled)
        parts = trained(8, clip_norm=clip_norm, scaled=scaled)
        name = f"scaler {scaled}, clip_norm {clip_norm}"
        told[name] = near(whole, parts, 1e-13)
        if scaled:
            near(whole, trained(None, clip_norm=clip_norm), 1e-13)
    assert near(trained(None), trained(None, clip_norm=0.05), 10.0) > 1e-3  # it did clip
    return told


def case_loop_in_float32() -> float:
    return near(trained(None, kind=torch.float32), trained(8, kind=torch.float32), 1e-5)
