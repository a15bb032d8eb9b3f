"""Beats of every kind of training loop, seen in the page while the script trains."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from rocsteady_train.inside import wire

if TYPE_CHECKING:
    from tests.inside.conftest import Inside

pytestmark = pytest.mark.slow

BEGIN = """
    import json, mmap, os, struct, threading, time, warnings
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    def page():
        with open(f"{os.environ['ROCSTEADY_PAGES']}/{os.getpid()}.page", "rb") as stream:
            return struct.unpack("@512Q", stream.read())

    def model(): return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    def loader(**more): return DataLoader(torch.randn(20, 8), batch_size=4, **more)

    said = {}
    def case(function):
        before = page(); function(); after = page()
        said[function.__name__] = [after[8] - before[8], after[9] - before[9]]
"""

# Each is five times round. What is expected: steps, and the least number of beats.
CASES = """
    def train(make, through=lambda function: function):
        net = model(); optimizer = make(net.parameters()); step = through(optimizer.step)
        for batch in loader():
            optimizer.zero_grad(); net(batch).mean().backward(); step()

    @case
    def sgd(): train(lambda p: torch.optim.SGD(p, lr=0.1))
    @case
    def adamw(): train(torch.optim.AdamW)
    @case
    def adamw_fused(): train(lambda p: torch.optim.AdamW(p, fused=True))
    @case
    def subclass():
        class Own(torch.optim.Optimizer):
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]: p.data.add_(p.grad, alpha=-0.1)
        train(lambda p: Own(p, {}))
    @case
    def scheduled():
        net = model(); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        for batch in loader():
            net(batch).mean().backward(); optimizer.step(); schedule.step()
    @case
    def lbfgs():
        net = model(); optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)
        for batch in loader():
            def closure():
                optimizer.zero_grad(); loss = net(batch).square().mean(); loss.backward()
                return loss
            optimizer.step(closure)
    def scaled(factor):
        net = model(); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        for batch in loader():
            scaler.scale(net(batch).mean() * factor).backward()
            scaler.step(optimizer); scaler.update()
    @case
    def scaler(): scaled(1.0)
    @case
    def scaler_that_skips(): scaled(float("inf"))
    @case
    def compiled_step():
        train(lambda p: torch.optim.SGD(p, lr=0.1), lambda f: torch.compile(f, backend="eager"))
    @case
    def compiled_after_reset():
        torch._dynamo.reset()
        net = torch.compile(model(), backend="eager"); optimizer = torch.optim.SGD(net.parameters())
        for batch in loader():
            net(batch).mean().backward(); optimizer.step()
    @case
    def home_made():
        net = model()
        for batch in loader():
            net(batch).mean().backward()
            with torch.no_grad():
                for p in net.parameters(): p -= 0.1 * p.grad
    @case
    def home_made_without_a_loader():
        net = model()
        for _ in range(5): net(torch.randn(4, 8)).mean().backward()
    @case
    def accumulated():
        net = model(); optimizer = torch.optim.SGD(net.parameters())
        for batch in loader(): net(batch).mean().backward()
        optimizer.step()
    @case
    def one_optimizer_that_calls_another():
        class Outer(torch.optim.Optimizer):
            def __init__(self, p):
                p = list(p); super().__init__(p, {}); self.inner = torch.optim.SGD(p, lr=0.1)
            def step(self, closure=None): self.inner.step()
        train(Outer)
    def in_backward(also=lambda: None):
        net = model()
        for each in net.parameters():
            optimizer = torch.optim.SGD([each], lr=0.1)
            each.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())
        for batch in loader():
            net(batch).mean().backward()
            also()
    @case
    def updated_in_backward(): in_backward()
    @case
    def updated_in_backward_with_a_dummy_step():
        class Dummy(torch.optim.Optimizer):
            def step(self, closure=None): pass
        in_backward(Dummy([nn.Parameter(torch.zeros(1))], {}).step)
    @case
    def fork_loader():
        net = model(); optimizer = torch.optim.SGD(net.parameters())
        for batch in loader(num_workers=2, multiprocessing_context="fork"):
            net(batch).mean().backward(); optimizer.step()
    @case
    def a_step_that_fails():
        net = model(); good = torch.optim.SGD(net.parameters())
        class Bad(torch.optim.Optimizer):
            def step(self, closure=None): raise MemoryError
        bad = Bad(net.parameters(), {})
        for batch in loader():
            net(batch).mean().backward()
            try: bad.step()
            except MemoryError: pass
            optimizer = good; net(batch).mean().backward(); good.step()
    @case
    def threads_that_load_ahead():
        done = threading.Thread(target=lambda: list(loader()))
        done.start(); done.join()
    print(json.dumps(said))
"""
EXPECTED = {
    "sgd": (5, 30),
    "adamw": (5, 30),
    "adamw_fused": (5, 30),
    "subclass": (5, 30),
    "scheduled": (5, 30),
    "lbfgs": (5, 40),
    "scaler": (5, 30),
    "scaler_that_skips": (0, 20),
    "compiled_step": (5, 30),
    "compiled_after_reset": (5, 30),
    "home_made": (0, 20),
    "home_made_without_a_loader": (0, 10),
    "accumulated": (1, 22),
    "one_optimizer_that_calls_another": (5, 30),
    "updated_in_backward": (5, 60),
    "updated_in_backward_with_a_dummy_step": (5, 70),
    "fork_loader": (5, 30),
    "a_step_that_fails": (5, 40),
    "threads_that_load_ahead": (0, 0),
}


@pytest.fixture(scope="module")
def said(
    inside_module: Inside, torch_python: str
) -> dict[str, tuple[int, int]]:  # one import of torch for all cases
    done = inside_module.run(torch_python, inside_module.script(BEGIN + CASES))
    assert (done.code, inside_module.notes()) == (0, ""), done.err.decode()
    assert b"rocsteady" not in done.err  # Dynamo says a word about torch's own code
    result: dict[str, tuple[int, int]] = json.loads(done.out)
    return result


def test_every_case_is_expected(said: dict[str, tuple[int, int]]) -> None:
    assert said.keys() == EXPECTED.keys()


@pytest.mark.parametrize("case", EXPECTED)
def test_steps_and_beats(said: dict[str, tuple[int, int]], case: str) -> None:
    steps, beats = said[case]
    expected, least = EXPECTED[case]

    assert steps == expected
    assert beats >= least
    assert (beats == 0) == (least == 0)


PHASES = """
    def phase(): return PHASES[page()[10]]
    seen = {}
    class Watching(torch.utils.data.Dataset):
        def __len__(self): return 4
        def __getitem__(self, index):
            seen["in a dataset"] = phase(); return torch.randn(8)
    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x
        @staticmethod
        def backward(ctx, g):
            seen["in backward"] = phase(); return g
    class Stepping(torch.optim.SGD):
        def step(self, closure=None):
            seen["in a step"] = phase(); return super().step()
    class Saved:
        def __reduce__(self):
            seen["in torch.save"] = phase(); return (int, ())

    seen["at first"] = phase()
    torch.save(Saved(), "first.pt")
    seen["still"] = phase()
    net = model().eval(); optimizer = Stepping(net.parameters(), lr=0.1)
    seen["a model that is only set up"] = phase()
    for batch in DataLoader(Watching(), batch_size=2):
        seen["in a loop"] = phase()
        Layer.apply(net(batch)).mean().backward()
        seen["after backward"] = phase()
        optimizer.step()
        seen["after a step"] = phase()
    torch.save(Saved(), "model.pt")
    seen["after a save"] = phase()
    net.eval()
    seen["in evaluation"] = phase()
    for batch in loader(): seen["in an evaluation's loop"] = phase()
    seen["after an evaluation's loop"] = phase()
    net.train()
    net(batch).mean().backward()
    seen["training again"] = phase()

    def backend(graph, inputs):
        seen["in the compiler"] = phase(); return graph.forward
    torch.compile(model(), backend=backend)(batch)
    seen["after compiling"] = phase()

    import torch.distributed.checkpoint as dcp
    class Stateful:
        def state_dict(self):
            seen["in dcp.save"] = phase(); return {"a": torch.ones(1)}
        def load_state_dict(self, state): pass
    warnings.simplefilter("ignore")
    dcp.save({"model": Stateful()}, checkpoint_id="checkpoint")
    print(json.dumps(seen))
"""


def test_phases(inside: Inside, torch_python: str) -> None:
    names = f"\n    PHASES = {wire.PHASES!r}\n"
    done = inside.run(torch_python, inside.script(BEGIN + names + PHASES))

    assert (done.code, done.err, inside.notes()) == (0, b"", "")
    assert json.loads(done.out) == {
        "at first": "starting",
        "in torch.save": "checkpoint",
        "still": "starting",
        "a model that is only set up": "starting",
        "in a dataset": "data",
        "in a loop": "compute",
        "in backward": "backward",
        "after backward": "compute",
        "in a step": "optimizer",
        "after a step": "compute",
        "after a save": "compute",
        "in evaluation": "evaluate",
        "in an evaluation's loop": "evaluate",
        "after an evaluation's loop": "evaluate",
        "training again": "compute",
        "in the compiler": "compile",
        "after compiling": "compute",
        "in dcp.save": "checkpoint",
    }
    assert inside.page().phase == "finishing"
    assert inside.page().words[wire.W_HOOKS] == (1 << len(wire.HOOKS)) - 1


def test_time_in_phases_adds_up_and_long_stays_are_all_seen(
    inside: Inside, torch_python: str
) -> None:
    script = """
    net = model(); optimizer = torch.optim.SGD(net.parameters())
    for epoch in range(2):
        for index, batch in enumerate(loader()):
            time.sleep(0.3 if index == 3 else 0.02)
            net(batch).mean().backward(); optimizer.step()
        net.eval(); time.sleep(0.6)
    """
    assert inside.run(torch_python, inside.script(BEGIN + script)).code == 0
    page = inside.page()
    spent = sum(page.words[wire.W_TIME : wire.W_TIME + len(wire.PHASES)])
    passed = page.words[wire.W_SINCE] - page.words[wire.W_MADE]

    assert 0.3 <= page.longest("compute") < 0.6 <= page.longest("evaluate")
    assert 0.8 * passed <= spent <= passed
    for phase in range(len(wire.PHASES)):
        start = wire.W_HISTOGRAM + phase * wire.BUCKETS
        assert sum(page.words[start : start + wire.BUCKETS]) == page.words[wire.W_COUNT + phase]
