"""Autocast and compiling of models that a script trains without either."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rocsteady.evidence.heartbeat_pages import Size, read_applied, read_size

if TYPE_CHECKING:
    from tests.inside.conftest import Inside

pytestmark = pytest.mark.slow

BEGIN = """
    import collections, copy, dataclasses, io, json, os, sys, traceback, warnings
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint
    torch.manual_seed(0); torch.set_num_threads(1)
    said = {}
    def case(function): said[function.__name__] = function()
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    class Net(nn.Module):
        def __init__(self, then=lambda seen: seen):
            super().__init__(); self.layer = nn.Linear(8, 8); self.then = then
        def forward(self, x):
            seen = self.layer(x); self.dtype = seen.dtype; return self.then(seen)
        @property
        def kind(self): return str(self.dtype)[6:]
    def trained(net):
        net.optimizer = torch.optim.SGD(net.parameters(), lr=0.1); return net
    def step(net, x=x):
        given = net(x); loss = F.mse_loss(given, y)
        net.optimizer.zero_grad(); loss.backward(); net.optimizer.step()
        return loss.item()
"""


def run(
    inside: Inside,
    python: str,
    text: str,
    variables: dict[str, str] | None = None,
    **settings: object,
) -> Any:  # noqa: ANN401 - JSON
    """Run a script under a strategy, and give what it printed."""
    script = inside.script(BEGIN + text + "\n    print(json.dumps(said))\n")
    more: dict[str, Any] = dict(variables or {})
    if settings:
        more["ROCSTEADY_STRATEGY"] = json.dumps({"version": 1, **settings})
    done = inside.run(python, script, **more)
    assert (done.code, inside.notes()) == (0, ""), done.err.decode()
    return json.loads(done.out)


def outcomes(inside: Inside) -> list[tuple[str, str, int, str]]:
    told = read_applied(inside.injection.pages)
    return [(one.setting, one.outcome, one.times, one.why) for one in told]


CASTS = """
    Both = collections.namedtuple("Both", "one other")
    @dataclasses.dataclass
    class Given: one: torch.Tensor
    def leaves(then, of):
        net = trained(Net(then)); given = net(x)
        return [net.kind, str(of(given).dtype)[6:], type(given).__name__]
    @case
    def kinds():
        normal = lambda seen: torch.distributions.Normal(seen, seen.exp())
        return [
            leaves(lambda seen: seen, lambda given: given),
            leaves(lambda seen: (seen, [seen]), lambda given: given[1][0]),
            leaves(lambda seen: {"one": {"two": seen}}, lambda given: given["one"]["two"]),
            leaves(lambda seen: Both(seen, 1), lambda given: given.one),
            leaves(Given, lambda given: given.one),
            leaves(normal, lambda given: given.scale),
        ]
    @case
    def learns():
        net, names = trained(Net()), list(Net().state_dict())
        losses = [step(net) for _ in range(20)]
        with torch.autocast("cpu", torch.bfloat16): by_hand = copy.deepcopy(net)(x)
        return [losses[-1] < losses[0], str(net.layer.weight.grad.dtype)[6:],
            torch.equal(net(x), by_hand.float()), list(net.state_dict()) == names]
    @case
    def without_gradients():
        net = trained(Net())
        with torch.no_grad(): net(x)
        first = net.kind; step(net)
        with torch.no_grad(): net.eval()(x)
        return [first, net.kind]
    @case
    def not_trained(): net = Net(); net(x); return net.kind
    @case
    def parts_that_are_called():
        net = trained(nn.ModuleList([Net(), Net()])); net[1](net[0](x))
        return [net[0].kind, net[1].kind]
    @case
    def a_part_of_a_whole():
        inner = Net(); outer = trained(nn.Sequential(inner, nn.ReLU())); outer(x)
        return [type(one._compiled_call_impl).__name__ for one in (outer, inner)]
    @case
    def computed_again():
        net = trained(Net())
        checkpoint(net, x, use_reentrant=False).sum().backward()
        with torch.autocast("cpu", enabled=False):
            checkpoint(net, x, use_reentrant=False).sum().backward()
        return net.kind
    @case
    def saved():
        net = trained(Net(torch.tanh)); net(x)
        kept = io.BytesIO(); torch.save(net, kept); kept.seek(0)
        again = torch.load(kept, weights_only=False)
        return [b"rocsteady" in kept.getvalue(), again._compiled_call_impl,
            copy.deepcopy(net)._compiled_call_impl]
    @case
    def traced():
        net = trained(nn.Linear(8, 8)); net(x)
        return str(torch.jit.trace(net, x)(x).dtype)[6:]
    @case
    def resting(): return nn.Module.__call__ is nn.Module._wrapped_call_impl
"""


def test_a_model_runs_in_bf16_and_gives_back_float32(inside: Inside, torch_python: str) -> None:
    said = run(inside, torch_python, CASTS, autocast="bf16")

    names = ["Tensor", "tuple", "dict", "Both", "Given", "Normal"]
    assert said == {
        "kinds": [["bfloat16", "float32", name] for name in names],
        "learns": [True, "float32", True, True],
        "without_gradients": ["bfloat16", "bfloat16"],
        "not_trained": "float32",
        "parts_that_are_called": ["bfloat16", "bfloat16"],
        "a_part_of_a_whole": ["Place", "NoneType"],
        "computed_again": "float32",
        "saved": [False, None, None],
        "traced": "float32",
        "resting": True,
    }
    (told,) = outcomes(inside)
    assert told[:2] == ("autocast", "applied")


NOT_CAST = """
    @case
    def around():
        net = trained(Net())
        with torch.autocast("cpu", torch.float16): net(x)
        first = net.kind
        with torch.autocast("cpu", enabled=False): net(x)
        return [first, net.kind]
    @case
    def within():
        class Own(Net):
            def forward(self, x):
                with torch.autocast("cpu", torch.float16): return super().forward(x)
        net = trained(Own()); net(x); net(x); return net.kind
    @case
    def a_part_of_it_without():
        class Part(Net):
            def forward(self, x):
                with torch.autocast("cpu", enabled=False): return super().forward(x.float())
        net = trained(nn.Sequential(Net(), Part())); net(x); return [net[0].kind, net[1].kind]
    @case
    def weights(): net = trained(Net().double()); net(x.double()); return net.kind
    @case
    def cannot():
        net = trained(Net(lambda seen: torch.from_numpy(seen.detach().numpy())))
        return [str(net(x).dtype), net.kind]
    @case
    def its_own_error():
        net = trained(Net())
        try: net(torch.ones(1, 3))
        except RuntimeError as error:
            lines = traceback.format_exc()
            return ["shapes cannot be multiplied" in lines, lines.count("Traceback")]
"""


def test_what_a_script_says_of_precision_itself_is_left(inside: Inside, torch_python: str) -> None:
    said = run(inside, torch_python, NOT_CAST, autocast="bf16")

    assert said == {
        "around": ["float16", "float32"],
        "within": "float16",
        "a_part_of_it_without": ["bfloat16", "float32"],
        "weights": "float64",
        "cannot": ["torch.float32", "float32"],
        "its_own_error": [True, 1],
    }
    assert sorted(one[:3] for one in outcomes(inside)) == [
        ("autocast", "applied", 1),
        ("autocast", "refused", 3),
    ]


COMPILES = """
    from torch._dynamo.utils import counters
    def graphs(): return counters["stats"]["unique_graphs"]
    def close(one, other): return all(abs(step(one) - step(other)) < 1e-5 for _ in range(3))
    @case
    def one():
        net = trained(Net(torch.tanh)); plain = copy.deepcopy(net); names = list(net.state_dict())
        plain.optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        same, seen = close(net, plain), graphs()
        with torch.no_grad(): net.eval()(x[:2])
        net.train(); loss = net(x).sum(); loss.backward(retain_graph=True); loss.backward()
        again = graphs() - seen
        called = []; hook = net.layer.register_forward_hook(lambda *_: called.append(1)); step(net)
        hook.remove()
        kept = io.BytesIO(); torch.save(net, kept)
        return [same, seen > 0, again, called, list(net.state_dict()) == names,
            copy.deepcopy(net)._compiled_call_impl]
    @case
    def of_a_class_of_torch():
        seen, net = graphs(), trained(nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
        for _ in range(3): step(net)
        return graphs() - seen
    @case
    def its_own_error():
        net = trained(Net()); step(net); step(net)
        try: net(torch.ones(1, 3))
        except RuntimeError:
            lines = traceback.format_exc()
            return ["shapes cannot be multiplied" in lines, lines.count("Traceback")]
"""


def test_a_model_is_compiled_in_place(inside: Inside, torch_python: str) -> None:
    said = run(inside, torch_python, COMPILES, compile=True, autocast="bf16")

    assert said == {
        "one": [True, True, 0, [1], True, None],
        "of_a_class_of_torch": 1,
        "its_own_error": [True, 1],
    }
    told = [one[:3] for one in outcomes(inside)]
    assert ("compile", "applied", 4) in told
    assert "refused" not in {outcome for _, outcome, _ in told}


NOT_COMPILED = """
    @case
    def gradients_of_gradients():
        net = trained(Net(torch.tanh))
        for _ in range(3):
            at = x.clone().requires_grad_(); loss = net(at).sum()
            (slope,) = torch.autograd.grad(loss, at, create_graph=True)
            slope.square().sum().backward(); net.optimizer.step()
        return net.layer.weight.grad is not None
    @case
    def its_own():
        net = trained(Net()); fast = torch.compile(net, backend="eager")
        for _ in range(3): fast(x).sum().backward(); net.optimizer.step()
        return [list(fast.state_dict()), type(net._compiled_call_impl).__name__]
    @case
    def its_own_in_place():
        net = trained(Net()); net.compile(backend="eager"); own = net._compiled_call_impl
        for _ in range(3): step(net)
        return [list(net.state_dict()), type(net._compiled_call_impl).__name__]
"""


def test_what_cannot_or_must_not_be_compiled_is_left(inside: Inside, torch_python: str) -> None:
    said = run(inside, torch_python, NOT_COMPILED, compile=True)

    assert said["gradients_of_gradients"]
    assert said["its_own"] == [["_orig_mod.layer.weight", "_orig_mod.layer.bias"], "NoneType"]
    assert said["its_own_in_place"] == [["layer.weight", "layer.bias"], "Place"]
    assert [one[:3] for one in outcomes(inside)] == [("compile", "refused", 3)]


def test_a_compiler_that_fails_changes_nothing(inside: Inside, torch_python: str) -> None:
    text = "\n    net = trained(Net(torch.tanh)); said = [step(net) for _ in range(4)]\n"
    plain = run(inside, torch_python, text)
    variables = {"CXX": "/bin/false", "TORCHINDUCTOR_CACHE_DIR": str(inside.folder)}

    assert run(inside, torch_python, text, variables, compile=True) == plain
    (told,) = outcomes(inside)
    assert told[:3] == ("compile", "refused", 1)
    assert "/bin/false" in told[3]


def test_dynamo_that_is_switched_off_stays_so(inside: Inside, torch_python: str) -> None:
    text = "\n    net = trained(Net()); step(net); step(net)\n"
    run(inside, torch_python, text, {"TORCHDYNAMO_DISABLE": "1"}, compile=True)

    why = "Net: TORCHDYNAMO_DISABLE=1 is set"
    assert outcomes(inside) == [("compile", "refused", 1, why)]


def test_where_nothing_is_trained_there_is_no_effect(inside: Inside, torch_python: str) -> None:
    run(inside, torch_python, "\n    Net()(x).sum().backward()\n", compile=True, autocast="bf16")

    assert sorted(outcomes(inside)) == [
        ("autocast", "no effect", 0, ""),
        ("compile", "no effect", 0, ""),
    ]


SIZES = """
    from torch.utils.data import DataLoader, IterableDataset
    one, other = nn.Linear(8, 8), nn.Linear(8, 1, bias=False)
    first = torch.optim.SGD(one.parameters(), lr=0.1)
    second = torch.optim.SGD([*other.parameters(), one.bias], lr=0.1)
    one.bias.requires_grad_(False)
    for _ in DataLoader(torch.randn(9, 8), 3): pass  # as a check before training
    for x in DataLoader(torch.randn(50, 8), batch_size=4):
        other(one(x)).sum().backward(); first.step(); first.step(); second.step()
    for _ in DataLoader(torch.randn(900, 8), 9): pass
"""


def test_the_size_of_what_is_trained_is_told(inside: Inside, torch_python: str) -> None:
    run(inside, torch_python, SIZES)

    size = read_size(inside.injection.pages)
    assert size == Size(parameters=72, batch=4, batches=13)


def test_a_length_that_nobody_knows_is_not_asked_for(inside: Inside, torch_python: str) -> None:
    text = """
    from torch.utils.data import DataLoader, IterableDataset
    class Stream(IterableDataset):
        def __iter__(self): return iter(torch.randn(6, 8))
        def __len__(self): raise SystemExit("asked")
    net = trained(Net())
    for x in DataLoader(Stream(), 2): net(x).sum().backward(); net.optimizer.step()
    """
    run(inside, torch_python, text)

    size = read_size(inside.injection.pages)
    assert size == Size(parameters=72, batch=2, batches=0)
