"""Small models that are trained for some steps: the loss must fall and stay finite."""

from __future__ import annotations

import math
from typing import Any

from .experiment import Experiment, NotHere, WrongNumbers

ENOUGH = 20  # steps, after which the loss must have fallen
FALLEN = 0.9  # to this share of the first one: each learns one batch by heart, which is easy
WORDS, TOKENS, SENTENCES = 64, 32, 8
AGENTS, SEEN, ACTIONS = 16, 24, 8


class Training:
    """A model that learns one batch by heart."""

    def __init__(self, torch: Any, parameters: Any, loss_of: Any, rate: float = 1e-3) -> None:
        self._loss_of = loss_of
        self._optimizer = torch.optim.Adam(parameters, rate)
        self._losses: list[float] = []

    def step(self) -> None:
        self._optimizer.zero_grad()
        loss = self._loss_of()
        loss.backward()
        self._optimizer.step()
        self.note(float(loss.detach()))

    def note(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise WrongNumbers(f"step {len(self._losses) + 1}: the loss is {loss}")
        self._losses.append(loss)
        if len(self._losses) == ENOUGH and loss > FALLEN * self._losses[0]:
            raise WrongNumbers(
                f"the loss went from {self._losses[0]:.4g} to {loss:.4g} in {ENOUGH} steps"
            )


def transformer(trial: Experiment) -> None:
    torch = trial.torch
    torch.manual_seed(0)
    width = 64
    embed = torch.nn.Embedding(WORDS, width).to(trial.device)
    body, head = _encoder(torch, width, 4, 2).to(trial.device), _linear(trial, width, WORDS)
    text = torch.randint(WORDS, (SENTENCES, TOKENS + 1)).to(trial.device)

    def loss_of() -> Any:
        scores = head(body(embed(text[:, :-1])))
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())

    training = Training(torch, _all(embed, body, head), loss_of)
    for _ in trial.tries():
        training.step()


def actor_critic(trial: Experiment) -> None:
    """Train an actor-critic whose agents attend to each other: 2.9 million parameters."""
    torch = trial.torch
    torch.manual_seed(0)
    width, games = 284, 2
    sense, body = _linear(trial, SEEN, width), _encoder(torch, width, 4, 3).to(trial.device)
    actor, critic = _linear(trial, width, ACTIONS), _linear(trial, width, 1)
    parameters = _all(sense, body, actor, critic)
    trial.figures["parameters"] = sum(each.numel() for each in parameters)
    seen = torch.randn(games, AGENTS, SEEN).to(trial.device)
    done = torch.randint(ACTIONS, (games, AGENTS)).to(trial.device)
    reward = torch.randn(games, AGENTS).to(trial.device)

    def loss_of() -> Any:
        thought = body(sense(seen))
        worth = critic(thought).squeeze(-1)
        chance = torch.log_softmax(actor(thought), -1)
        taken = chance.gather(-1, done.unsqueeze(-1)).squeeze(-1)
        imitate = -taken.mean()  # of fixed actions: this falls, where a policy's loss need not
        return imitate + torch.nn.functional.mse_loss(worth, reward)

    training = Training(torch, parameters, loss_of, 3e-4)
    for _ in trial.tries():
        training.step()


def mixed_precision(trial: Experiment) -> None:
    """Train with autocast and GradScaler; once a gradient is infinite, and the step is skipped."""
    torch = trial.torch
    if not hasattr(torch.amp, "GradScaler"):
        raise NotHere(f"torch {torch.__version__} has no torch.amp.GradScaler")
    torch.manual_seed(0)
    kind = torch.float16 if trial.device == "cuda" else torch.bfloat16
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(
        trial.device
    )
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    scaler = torch.amp.GradScaler(trial.device, init_scale=1024.0)
    x, y = torch.randn(64, 32).to(trial.device), torch.randn(64, 4).to(trial.device)
    training = Training(torch, net.parameters(), None)
    for number in trial.tries():
        optimizer.zero_grad()
        with torch.autocast(trial.device, kind):
            loss = torch.nn.functional.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        if number == 1:
            _overflows(torch, net, optimizer, scaler)
            continue
        scaler.step(optimizer)
        scaler.update()
        training.note(float(loss.detach()))


def _overflows(torch: Any, net: Any, optimizer: Any, scaler: Any) -> None:
    before = [each.detach().clone() for each in net.parameters()]
    scale = scaler.get_scale()
    net[0].weight.grad[0, 0] = math.inf
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() >= scale:
        raise WrongNumbers("GradScaler took no notice of an infinite gradient")
    for one, other in zip(net.parameters(), before):
        if not torch.equal(one.detach(), other):
            raise WrongNumbers("GradScaler made a step with an infinite gradient")


def _encoder(torch: Any, width: int, heads: int, layers: int) -> Any:
    return torch.nn.Sequential(
        *(
            torch.nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
    )


def _linear(trial: Experiment, inputs: int, outputs: int) -> Any:
    return trial.torch.nn.Linear(inputs, outputs).to(trial.device)


def _all(*parts: Any) -> list[Any]:
    return [each for part in parts for each in part.parameters()]
