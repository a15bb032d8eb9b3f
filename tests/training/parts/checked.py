"""What may not be split is not, and looking leaves no trace."""

from __future__ import annotations

import contextlib
import logging
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np  # type: ignore[import-not-found, unused-ignore]
import torch
from torch import nn

from rocsteady.errors import MicroBatchError
from rocsteady.training import loss_comparison
from rocsteady.training.loss_comparison import compare
from rocsteady.training.micro_batches import MicroBatches
from rocsteady.training.undo import Undo

BATCH, WIDTH = 32, 16
BOTH = re.compile(r"the loss of \d+ samples is (\S+), and (\S+) from its parts")


@contextlib.contextmanager
def warnings() -> Iterator[list[str]]:
    texts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("rocsteady")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield texts
    finally:
        logger.removeHandler(handler)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, WIDTH, generator=generator), torch.arange(BATCH) % 4


def network(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(WIDTH, 32), *layers, nn.Linear(32, 4))


def mean(net: nn.Module) -> Callable[[Any], torch.Tensor]:
    return lambda part: nn.functional.cross_entropy(net(part[0]), part[1])


def contrastive(net: nn.Module) -> Callable[[Any], torch.Tensor]:
    """Each sample should be nearest to itself, among all others of the batch."""

    def compute(part: Any) -> torch.Tensor:
        places = nn.functional.normalize(net(part[0]), dim=1)
        alike = places @ places.T / 0.1
        return nn.functional.cross_entropy(alike, torch.arange(len(alike)))

    return compute


def padded() -> tuple[torch.Tensor, torch.Tensor]:
    inputs, _ = batch()
    labels = torch.arange(BATCH * 3).reshape(BATCH, 3) % 4
    for number in range(BATCH):
        labels[number, 1 + number // 12 :] = -100
    return inputs, labels


def token_mean(net: nn.Module) -> Callable[[Any], torch.Tensor]:
    def compute(part: Any) -> torch.Tensor:
        logits = net(part[0]).unsqueeze(1).expand(-1, 3, -1)
        return nn.functional.cross_entropy(logits.reshape(-1, 4), part[1].reshape(-1))

    return compute


def bare(net: nn.Module, data: Any, compute: Callable[[Any], Any]) -> list[torch.Tensor]:
    net.zero_grad()
    compute(data).backward()
    return [parameter.grad.clone() for parameter in net.parameters()]


def refused(net: nn.Module, data: Any, compute: Callable[[Any], Any], **said: Any) -> str:
    """Told once, and trained whole to the bit."""
    expected = bare(net, data, compute)
    parts = MicroBatches(net, 8)
    with warnings() as texts:
        for _ in range(3):
            net.zero_grad()
            parts.backward(data, compute, zero=net.zero_grad, **said)
    assert all(torch.equal(a, b.grad) for a, b in zip(expected, net.parameters(), strict=True))
    assert parts.trained == (BATCH, BATCH)
    (text,) = texts
    assert text.endswith("The batch is trained whole.")
    found = BOTH.search(text)
    assert found is not None
    assert float(found[1]) != float(found[2])
    return text


def case_a_contrastive_loss_is_refused() -> str:
    net = network(nn.Dropout(0.0))
    return refused(net, batch(), contrastive(net))


def case_a_mean_said_to_be_a_sum_is_refused() -> str:
    net = network(nn.ReLU())
    return refused(net, batch(), mean(net), reduction="sum")


def case_a_sum_said_to_be_a_mean_is_refused() -> str:
    net = network(nn.ReLU())
    return refused(
        net,
        batch(),
        lambda part: nn.functional.cross_entropy(net(part[0]), part[1], reduction="sum"),
    )


def case_a_mean_over_tokens_without_a_count_is_refused() -> str:
    net = network(nn.ReLU())
    return refused(net, padded(), token_mean(net))


class OutOfMemory:
    """A computation that does not fit, if more samples are trained at a time."""

    def __init__(self, compute: Callable[[Any], Any], most: int) -> None:
        self.compute, self.most = compute, most
        self.sizes: list[int] = []

    def __call__(self, part: Any) -> torch.Tensor:
        if torch.is_grad_enabled():
            self.sizes.append(len(part[0]))
            if len(part[0]) > self.most:
                raise torch.OutOfMemoryError("HIP out of memory. Tried to allocate 124.00 MiB.")
        return self.compute(part)


def raised(call: Callable[[], Any]) -> MicroBatchError:
    try:
        with warnings():
            call()
    except MicroBatchError as error:
        return error
    raise AssertionError("nothing was refused")


def case_refused_after_out_of_memory_ends_with_both_reasons() -> list[str]:
    net = network(nn.ReLU())
    texts = []
    for part in (None, 8):
        compute = OutOfMemory(contrastive(net), most=16)
        parts = MicroBatches(net, part)
        error = raised(lambda: parts.backward(batch(), compute, zero=net.zero_grad))  # noqa: B023
        assert isinstance(error.__cause__, torch.OutOfMemoryError)
        assert BOTH.search(str(error)) is not None
        assert compute.sizes == [BATCH]  # nothing was trained in parts
        texts.append(str(error))
    return texts


def case_a_batch_that_has_no_first_axis_is_trained_whole() -> None:
    net = network(nn.ReLU())
    data = {"inputs": batch()[0], "labels": batch()[1], "weights": torch.ones(4)}
    compute = lambda part: nn.functional.cross_entropy(  # noqa: E731
        net(part["inputs"]), part["labels"], weight=part["weights"]
    )
    expected = bare(net, data, compute)
    net.zero_grad()
    with warnings() as texts:
        MicroBatches(net, 8).backward(data, compute, zero=net.zero_grad)
    assert "sizes [4, 32]" in texts[0]
    assert all(torch.equal(a, b.grad) for a, b in zip(expected, net.parameters(), strict=True))


class FunctionalDropout(nn.Module):  # many scripts call it so, and no layer of torch's is seen
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5, self.training)


class OfTheScript(nn.Module):
    """Draws from Python's and NumPy's generators, and counts, whether it trains or not."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("in_place", torch.zeros(()))
        self.replaced: torch.Tensor
        self.register_buffer("replaced", torch.zeros(()))
        self.register_buffer("by_data", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        random.random()
        np.random.rand()  # noqa: NPY002 - the global one is what scripts use
        self.in_place += 1
        self.replaced = self.replaced + 1
        self.by_data.data += 1
        return x


def traces(net: nn.Module) -> list[Any]:
    return [
        torch.get_rng_state().tolist(),
        random.getstate(),
        str(np.random.get_state()),  # noqa: NPY002
        [[id(buffer), buffer.tolist()] for buffer in net.buffers()],
        [module.training for module in net.modules()],
        [parameter.grad for parameter in net.parameters()],
    ]


def case_dropout_and_batch_norm_pass_and_no_trace_is_left() -> None:
    for layers in (
        [nn.Dropout(0.5)],
        [FunctionalDropout()],
        [nn.BatchNorm1d(32)],
        [nn.BatchNorm1d(32), nn.Dropout(0.5), FunctionalDropout(), OfTheScript()],
    ):
        net = network(*layers)
        net[0].training = False  # a layer that the script has put to rest stays so
        before = traces(net)
        assert compare(net, batch(), mean(net), total=BATCH, part=8, reduction="mean", count=None)
        assert traces(net) == before


def case_a_trace_would_be_seen() -> None:
    net = network(nn.BatchNorm1d(32), OfTheScript(), nn.Dropout(0.5))
    undo = Undo(net)
    for _ in range(3):  # in the first step all is copied, later only what moves
        undo.keep()
        before = traces(net)
        mean(net)(batch())
        after = traces(net)
        assert all(a != b for a, b in zip(before[:4], after[:4], strict=True))
        undo.back()
        assert traces(net) == before
        mean(net)(batch())
        undo.learn()


def case_a_buffer_that_moves_later_is_found() -> None:
    net = network(nn.BatchNorm1d(32), nn.BatchNorm1d(32))
    net[2].training = False
    undo = Undo(net)
    for step in range(6):
        net[2].training = step >= 3  # for the first time in step 3: seen after it
        undo.keep()
        before = traces(net)
        mean(net)(batch())
        if step != 3:
            undo.back()
            assert traces(net) == before
            mean(net)(batch())
        undo.learn()


def case_a_contrastive_loss_is_refused_with_functional_dropout_too() -> str:
    net = network(FunctionalDropout())
    error = raised(
        lambda: compare(
            net, batch(), contrastive(net), total=BATCH, part=8, reduction="mean", count=None
        )
    )
    assert BOTH.search(str(error)) is not None
    return str(error)


class LossInTrainingOnly(nn.Module):
    """As the detection models of torchvision: no loss in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network(nn.BatchNorm1d(32), nn.Dropout(0.5))

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(inputs)
        if not self.training:
            return {"labels": logits.argmax(1)}
        return {"loss": nn.functional.cross_entropy(logits, labels)}


def case_a_model_without_a_loss_in_evaluation_is_compared() -> None:
    net = LossInTrainingOnly()
    assert compare(
        net,
        batch(),
        lambda part: net(*part)["loss"],
        total=BATCH,
        part=8,
        reduction="mean",
        count=None,
    )


class Balanced(nn.Module):
    """Adds, in training only, a loss that looks at all samples: as mixtures of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network(nn.ReLU())

    def forward(self, part: Any) -> torch.Tensor:
        logits = self.net(part[0])
        loss = nn.functional.cross_entropy(logits, part[1])
        return loss + logits.softmax(1).mean(0).square().sum() if self.training else loss


def case_samples_that_are_compared_in_training_only_are_refused() -> str:
    return refused(net := Balanced(), batch(), net)


def case_a_loss_that_cannot_be_compared_is_said_and_split() -> None:
    net = network(nn.ReLU())
    parts = MicroBatches(net, 8)

    def noisy(part: Any) -> torch.Tensor:  # random whether or not a layer is in evaluation
        inputs = part[0] + torch.randn_like(part[0])
        return nn.functional.cross_entropy(net(inputs), part[1])

    with warnings() as texts:
        for _ in range(3):
            net.zero_grad()
            parts.backward(batch(), noisy, zero=net.zero_grad)
    (text,) = texts
    assert "could not be compared" in text
    assert parts.trained == (BATCH, 8)


def case_autocast_is_seen_though_the_loss_is_in_float32() -> None:
    plain = network(nn.ReLU(), nn.Linear(32, 32))
    for net in (plain, torch.compile(plain, backend="eager")):

        def compute(part: Any, net: Any = net) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                logits = net(part[0])
            return nn.functional.cross_entropy(logits.float(), part[1])

        kinds: set[torch.dtype] = set()
        with loss_comparison._autocast_seen(net, kinds):
            assert compute(batch()).dtype == torch.float32
        assert kinds == {torch.bfloat16}
        assert compare(net, batch(), compute, total=BATCH, part=5, reduction="mean", count=None)


def case_batch_norm_is_warned_about_once_with_the_reason() -> str:
    net = network(nn.BatchNorm1d(32))
    parts = MicroBatches(net, 8)
    with warnings() as texts:
        for _ in range(5):
            parts.backward(batch(), mean(net), zero=net.zero_grad)
            parts.backward(
                batch(),
                lambda part: nn.functional.cross_entropy(net(part[0]), part[1], reduction="sum"),
                reduction="sum",
                zero=net.zero_grad,
            )
    (text,) = texts
    assert "batch norm" in text
    assert "mean and variance per micro-batch" in text
    net.eval()
    with warnings() as texts:
        MicroBatches(net, 8).backward(batch(), mean(net), zero=net.zero_grad)
    assert texts == []  # its mean and variance do not depend on the batch
    return text


def made_anew(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda part: compute(part) * 1.0


def case_each_loss_of_a_script_is_compared() -> None:
    net = network(nn.ReLU())
    parts = MicroBatches(net, 8)
    looks = []

    def watched(part: Any) -> torch.Tensor:
        looks.append(torch.is_grad_enabled())
        return mean(net)(part)

    with warnings() as texts:
        for _ in range(3):
            parts.backward(batch(), made_anew(watched), zero=net.zero_grad)
        assert looks.count(False) == 5  # the whole and four parts, once
        assert texts == []
        parts.backward(batch(), contrastive(net), zero=net.zero_grad)
        assert len(texts) == 1
        parts.backward(batch(), made_anew(watched), zero=net.zero_grad)
    assert parts.trained == (BATCH, 8)
