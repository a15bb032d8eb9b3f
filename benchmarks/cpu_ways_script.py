"""A training script, as a person would write it, for cpu_ways.py: four models, each timed.

python benchmarks/cpu_ways_script.py perceptron 4.0 bf16 compile
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

WARM_UP = 5  # steps, the compiling among them
LEAST = 8  # steps that are timed


def made(kind: str) -> tuple[Any, Any, Callable[..., Any]]:
    """Return a model, the tensors of its data, and its loss: what a script would have."""
    import torch  # noqa: PLC0415 - the interpreter that compares does not have it
    from torch import nn  # noqa: PLC0415
    from torch.nn import functional  # noqa: PLC0415

    torch.manual_seed(0)
    if kind == "perceptron":
        wide = [layer for _ in range(3) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
        model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), *wide, nn.Linear(1024, 10))
        data = torch.randn(4096, 784), torch.randint(10, (4096,))
        return model, (*data, 128), functional.cross_entropy
    if kind == "transformer":
        data = torch.randint(4096, (512, 128)), torch.randint(4096, (512, 128))
        return _transformer(nn, torch), (*data, 8), _of_tokens(functional)
    if kind == "convolution":
        data = torch.randn(1024, 3, 32, 32), torch.randint(10, (1024,))
        return _convolution(nn, functional), (*data, 32), functional.cross_entropy
    data = torch.randn(1024, 32, 64), torch.randn(1024, 32)
    return _actor_critic(nn), (*data, 16), _of_actions(torch)


def _transformer(nn: Any, torch: Any) -> Any:  # noqa: ANN401 - torch has no types here
    class Transformer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(4096, 256)
            self.places = nn.Parameter(torch.randn(128, 256) / 16)
            layer = nn.TransformerEncoderLayer(
                256, 4, 1024, 0.1, "gelu", batch_first=True, norm_first=True
            )
            self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
            self.head = nn.Linear(256, 4096)
            mask = nn.Transformer.generate_square_subsequent_mask(128)
            self.register_buffer("mask", mask)

        def forward(self, tokens: Any) -> Any:  # noqa: ANN401
            seen = self.words(tokens) + self.places
            return self.head(self.layers(seen, self.mask, is_causal=True))

    return Transformer()


def _convolution(nn: Any, functional: Any) -> Any:  # noqa: ANN401
    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.one = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.two = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
            self.past = nn.Conv2d(before, after, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:  # noqa: ANN401
            y = functional.relu(self.norms[0](self.one(x)))
            return functional.relu(self.norms[1](self.two(y)) + self.past(x))

    widths = (64, 64, 128, 256)
    blocks = [Block(widths[i], widths[i + 1], 1 + (i > 0)) for i in range(3)]
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), nn.ReLU(), *blocks, *pooled)


def _actor_critic(nn: Any) -> Any:  # noqa: ANN401
    class ActorCritic(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512))
            self.memory = nn.LSTM(512, 512, batch_first=True)
            self.actor = nn.Sequential(nn.Linear(512, 256), nn.Tanh(), nn.Linear(256, 8))
            self.critic = nn.Sequential(nn.Linear(512, 256), nn.Tanh(), nn.Linear(256, 1))

        def forward(self, seen: Any) -> Any:  # noqa: ANN401
            kept, _ = self.memory(self.encoder(seen).tanh())
            return self.actor(kept), self.critic(kept).squeeze(-1)

    return ActorCritic()


def _of_tokens(functional: Any) -> Callable[..., Any]:  # noqa: ANN401
    return lambda given, wanted: functional.cross_entropy(given.flatten(0, 1), wanted.flatten())


def _of_actions(torch: Any) -> Callable[..., Any]:  # noqa: ANN401
    def loss(given: Any, gains: Any) -> Any:  # noqa: ANN401
        policy = torch.distributions.Categorical(logits=given[0])
        better = gains - given[1]
        chosen = policy.log_prob(policy.sample())
        lost = -(chosen * better.detach()).mean() + 0.5 * better.square().mean()
        return lost - 0.01 * policy.entropy().mean()

    return loss


def train(kind: str, seconds: float, written: list[str]) -> dict[str, float]:
    """Train in this process, which has torch, as a script would; give steps a second."""
    import torch  # noqa: PLC0415
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

    model, (inputs, targets, batch), loss_of = made(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    call = torch.compile(model) if "compile" in written else model
    loader = DataLoader(TensorDataset(inputs, targets), batch, shuffle=True, drop_last=True)
    took: list[float] = []
    began = time.perf_counter()

    def enough() -> bool:
        return sum(took[WARM_UP:]) > seconds and len(took) >= WARM_UP + LEAST

    while not enough():
        for seen, wanted in loader:
            cast = torch.autocast("cpu", torch.bfloat16)
            with cast if "bf16" in written else contextlib.nullcontext():
                loss = loss_of(call(seen), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            now = time.perf_counter()
            took.append(now - began)
            began = now
            if enough():
                break
    return {"rate": 1 / statistics.median(took[WARM_UP:]), "first": sum(took[:WARM_UP])}


if __name__ == "__main__":
    print(json.dumps(train(sys.argv[1], float(sys.argv[2]), sys.argv[3:])))
