"""Attention, precision and compiling, put in force on scripts that do not know of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rocsteady.hangs.heartbeat_pages import read_applied

if TYPE_CHECKING:
    from tests.inside.conftest import Inside

pytestmark = pytest.mark.slow

BEGIN = """
    import copy, io, json, os, pickle, sys, threading, warnings
    import torch
    from torch import nn
    from torch.nn import functional as F
    said = {}
    def case(function): said[function.__name__] = function()
"""


def run(inside: Inside, python: str, text: str, **settings: object) -> Any:  # noqa: ANN401 - JSON
    """Run a script under a strategy, and give what it printed."""
    script = inside.script(BEGIN + text + "\n    print(json.dumps(said))\n")
    strategy = json.dumps({"version": 1, **settings})
    done = inside.run(python, script, ROCSTEADY_STRATEGY=strategy)
    assert (done.code, inside.notes()) == (0, ""), done.err.decode()
    assert b"rocsteady" not in done.err
    return json.loads(done.out)


def outcomes(inside: Inside) -> list[tuple[str, str, str]]:
    told = read_applied(inside.injection.pages)
    return [(one.setting, one.outcome.value, one.why) for one in told]


KERNELS = """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.profiler import profile
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the profiler's own log
    KINDS = {
        "_scaled_dot_product_flash_attention_for_cpu": "flash",
        "_softmax": "math", "_safe_softmax": "math",  # in graphs only this is left of it
        "_native_multi_head_attention": "native", "_transformer_encoder_layer_fwd": "native",
    }
    def kernels(function):
        with profile() as profiled: function()
        names = {event.name.replace("aten::", "") for event in profiled.events()}
        return sorted({KINDS[name] for name in names & KINDS.keys()} - {"math"} or {"math"})
    q, x = torch.randn(2, 4, 32, 16, requires_grad=True), torch.randn(2, 8, 16)
    def attend(): F.scaled_dot_product_attention(q, q, q).sum().backward()
    def encoder():
        layer = nn.TransformerEncoderLayer(16, 4, dropout=0.0, batch_first=True)
        return nn.TransformerEncoder(layer, 1)

    @case
    def plain(): return kernels(attend)
    @case
    def with_a_kernel_of_its_own():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION): return kernels(attend)
    @case
    def with_another_of_its_own():
        with sdpa_kernel(SDPBackend.MATH): return kernels(attend)
    @case
    def after_switches_of_its_own():
        torch.backends.cuda.enable_math_sdp(False)
        torch.backends.mha.set_fastpath_enabled(True)
        try: return kernels(attend)
        finally: torch.backends.cuda.enable_math_sdp(True)
    @case
    def an_encoder_that_trains(): return kernels(lambda: encoder()(x).sum().backward())
    @case
    @torch.no_grad()
    def an_encoder_that_is_asked(): return kernels(lambda: encoder().eval()(x))
    @case
    @torch.no_grad()
    def multi_head():
        layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
        return kernels(lambda: layer(x, x, x, need_weights=False))
    @case
    def compiled():
        def attention(q):
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return F.scaled_dot_product_attention(q, q, q).sum()
        fast = torch.compile(attention, backend="aot_eager", fullgraph=True); fast(q)
        return kernels(lambda: fast(q).backward())
    @case
    def scripted():
        class Attention(nn.Module):
            def forward(self, x): return F.scaled_dot_product_attention(x, x, x)
        warnings.simplefilter("ignore")
        return kernels(lambda: torch.jit.script(Attention())(q).sum().backward())
    @case
    def of_a_subclass():
        from torch.nn.attention.bias import causal_lower_right
        mask = causal_lower_right(32, 32)
        return kernels(lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=mask))
"""


def test_math_attention_wins_over_all_that_a_script_says(inside: Inside, torch_python: str) -> None:
    said = run(inside, torch_python, KERNELS, attention="math")

    assert said == {name: ["math"] for name in said}
    assert outcomes(inside) == [("attention", "applied", "only math")]


def test_flash_attention_wins_as_well(inside: Inside, torch_python: str) -> None:
    said = run(inside, torch_python, KERNELS, attention="flash")

    assert said == {name: ["flash"] for name in said}
    assert outcomes(inside) == [("attention", "applied", "only flash and math")]


def test_without_a_strategy_the_same_script_uses_other_kernels(
    inside: Inside, torch_python: str
) -> None:
    script = inside.script(BEGIN + KERNELS + "\n    print(json.dumps(said))\n")
    said = json.loads(inside.run(torch_python, script).out)

    assert {name for name, kernels in said.items() if kernels == ["native"]} == {
        "an_encoder_that_is_asked",
        "multi_head",
    }
    assert [name for name, kernels in said.items() if kernels == ["math"]] == [
        "with_another_of_its_own"
    ]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("F.scaled_dot_product_attention(torch.ones(1, 1, 2, 8), *[torch.ones(1, 1, 2, 8)] * 2)",
         "applied"),
        ("torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1))", "applied"),
        ("torch.ones(1) + 1", "no effect"),
    ],
    ids=["eager", "in a graph", "none"],
)  # fmt: skip
def test_attention_that_is_not_there_is_no_effect(
    inside: Inside, torch_python: str, text: str, outcome: str
) -> None:
    run(inside, torch_python, "    " + text, attention="math")

    (told,) = outcomes(inside)
    assert told[:2] == ("attention", outcome)
    assert ("not seen" in told[2]) == ("compile" in text)


CAST = """
    warnings.simplefilter("ignore")
    net, x = nn.Linear(4, 4), torch.randn(2, 4)
    def dtype(): return str(net(x).dtype).replace("torch.", "")
    def inside(*args, **more):
        with torch.autocast(*args, **more): return dtype()
    @case
    def by_default(): return inside("cpu")
    @case
    def by_position(): return inside("cpu", torch.float16)
    @case
    def by_keyword(): return inside(device_type="cpu", dtype=torch.bfloat16, enabled=True)
    @case
    def of_amp():
        with torch.amp.autocast("cpu", dtype=torch.float16): return dtype()
    @case
    def of_the_old_name():
        with torch.cpu.amp.autocast(): return dtype()
    @case
    def as_a_decorator():
        @torch.autocast("cpu")
        def decorated(): return dtype()
        return decorated()
    @case
    def compiled():
        def cast(x):
            with torch.autocast("cpu"): return net(x)
        fast = torch.compile(cast, backend="aot_eager", fullgraph=True)
        return str(fast(x).dtype).replace("torch.", "")
    @case
    def switched_off(): return inside("cpu", enabled=False)
    @case
    def off_within_on():
        with torch.autocast("cpu"): return inside("cpu", enabled=False)
    @case
    def without_a_gpu():
        with torch.cuda.amp.autocast(): return dtype()
    @case
    def a_scaler():
        model = nn.Linear(4, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        before = model.weight.detach().clone()
        with torch.autocast("cpu", torch.float16): loss = model(x).sum()
        scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
        change = (before - model.weight) / 0.1
        return bool(torch.allclose(change, x.sum(0, keepdim=True), atol=0.1))
"""


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")],
)
def test_autocast_casts_to_what_was_asked_for(
    inside: Inside, torch_python: str, precision: str, dtype: str
) -> None:
    said = run(inside, torch_python, CAST, precision=precision)

    off = ("switched_off", "off_within_on", "without_a_gpu")
    assert said.pop("a_scaler")
    assert said == {name: "float32" if name in off else dtype for name in said}
    (told,) = outcomes(inside)
    assert told[:2] == ("precision", "applied")


def test_a_model_that_casts_itself_is_left_alone_and_that_is_said(
    inside: Inside, torch_python: str
) -> None:
    text = """
    @case
    def half(): return str(nn.Linear(2, 2).bfloat16()(torch.ones(1, 2).bfloat16()).dtype)
    """
    assert run(inside, torch_python, text, precision="fp32") == {"half": "torch.bfloat16"}
    assert outcomes(inside) == [("precision", "no effect", "")]


def test_a_type_that_autocast_does_not_take_is_refused(inside: Inside, torch_python: str) -> None:
    text = """
    from torch.amp import autocast_mode
    known = autocast_mode.torch  # as on a device that has no bf16
    class Without:
        bfloat16 = object()
        def __getattr__(self, name): return getattr(known, name)
    autocast_mode.torch = Without()
    @case
    def cast():
        with torch.autocast("cpu", torch.float16): return str(nn.Linear(2, 2)(torch.ones(2)).dtype)
    """
    assert run(inside, torch_python, text, precision="bf16") == {"cast": "torch.float16"}
    assert outcomes(inside) == [("precision", "refused", "autocast on cpu does not take bfloat16")]


COMPILE = """
    def double(x): return 2 * x
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.layer = nn.Linear(2, 2)
        def forward(self, x): return self.layer(x)
    x = torch.ones(1, 2)
    def graph(*_): raise SystemError("the compiler dies")

    @case
    def a_function(): return torch.compile(double, backend=graph) is double
    @case
    def a_decorator():
        @torch.compile(backend=graph)
        def triple(x): return 3 * x
        return triple(1)
    @case
    def a_bare_decorator():
        @torch.compile
        def triple(x): return 3 * x
        return triple(1)
    @case
    def a_module():
        net = Net(); fast = torch.compile(net, backend=graph)
        same = torch.equal(fast(x), net(x)); fast(x).sum().backward()
        learns, kind = net.layer.weight.grad is not None, torch._dynamo.OptimizedModule
        return [same, fast._orig_mod is net, list(fast.state_dict()), learns,
            isinstance(fast, kind), fast.eval().training, net.training]
    @case
    def a_module_of_torch():
        return list(torch.compile(nn.Sequential(Net()), backend=graph)(x).shape)
    @case
    def a_copy():
        fast = torch.compile(Net(), backend=graph); other = copy.deepcopy(fast)
        kept = io.BytesIO(); torch.save(fast, kept)
        ours = b"rocsteady" in kept.getvalue(); kept.seek(0)
        again = torch.load(kept, weights_only=False)
        return [torch.equal(fast(x), other(x)), torch.equal(fast(x), again(x)), ours]
    @case
    def in_place():
        net = Net(); told = net.compile(backend=graph); net(x)
        return [told, net._compiled_call_impl]
    @case
    def frames(): return sum(torch._dynamo.utils.counters["frames"].values())
"""


def test_what_is_compiled_is_given_back(inside: Inside, torch_python: str) -> None:
    said = run(inside, torch_python, COMPILE, compile=False)

    keys = ["_orig_mod.layer.weight", "_orig_mod.layer.bias"]
    assert said == {
        "a_function": True,
        "a_decorator": 3,
        "a_bare_decorator": 3,
        "a_module": [True, True, keys, True, True, False, False],
        "a_module_of_torch": [1, 2],
        "a_copy": [True, True, False],
        "in_place": [None, None],
        "frames": 0,
    }
    (told,) = outcomes(inside)
    assert told[:2] == ("compile", "applied")


def test_checkpoints_of_compiled_models_can_be_read_by_models_that_are_not(
    inside: Inside, torch_python: str
) -> None:
    script = (
        BEGIN
        + """
    net = torch.compile(nn.Sequential(nn.Linear(2, 2)), backend="eager")
    if os.path.exists("model.pt"): net.load_state_dict(torch.load("model.pt"))
    net(torch.ones(1, 2)).sum().item(); torch.save(net.state_dict(), "model.pt")
    """
    )
    path = inside.script(script)
    off = json.dumps({"version": 1, "compile": False})

    assert inside.run(torch_python, path).code == 0
    assert inside.run(torch_python, path, ROCSTEADY_STRATEGY=off, TORCHDYNAMO_DISABLE="1").code == 0
    assert inside.run(torch_python, path).code == 0  # and back


def test_a_script_that_compiles_nothing_has_no_effect(inside: Inside, torch_python: str) -> None:
    run(inside, torch_python, "    torch.ones(1)", compile=False)

    assert outcomes(inside) == [("compile", "no effect", "")]


def test_several_settings_at_once_in_torchrun_ranks(inside: Inside, torch_python: str) -> None:
    script = (
        BEGIN
        + """
    from torch.utils.data import DataLoader
    torch.distributed.init_process_group("gloo")
    loader = DataLoader(torch.randn(4, 2), num_workers=2)
    with torch.autocast("cpu"): cast = nn.Linear(2, 2)(next(iter(loader))).dtype
    with open(f"{torch.distributed.get_rank()}.txt", "w") as out:
        print(loader.num_workers, cast, file=out)
    torch.distributed.destroy_process_group()
    """
    )
    strategy = json.dumps({"version": 1, "workers": 0, "precision": "fp16", "compile": False})
    command = (torch_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done = inside.run(*command, inside.script(script), ROCSTEADY_STRATEGY=strategy)

    assert (done.code, inside.notes()) == (0, "")
    for rank in (0, 1):
        assert (inside.folder / f"{rank}.txt").read_text() == "0 torch.float16\n"
    told = [one[:2] for one in outcomes(inside)]
    assert told.count(("workers", "applied")) == told.count(("precision", "applied")) == 2
    assert told.count(("compile", "no effect")) == 3  # the launcher too


WITHOUT_MIOPEN = """
    cudnn = torch.backends.cudnn
    def at_first(): return cudnn.enabled
    def after_the_script_set_it():
        cudnn.enabled = True
        cudnn.set_flags(_enabled=True)
        return cudnn.enabled
    def in_a_context():
        with cudnn.flags(enabled=True): return cudnn.enabled
    def a_convolution_learns():
        layer = torch.nn.Conv2d(3, 4, 3)
        layer(torch.ones(1, 3, 8, 8)).sum().backward()
        return layer.weight.grad.abs().sum().item() > 0
    for each in (at_first, after_the_script_set_it, in_a_context, a_convolution_learns): case(each)
"""


def test_miopen_stays_off_whatever_the_script_says(inside: Inside, torch_python: str) -> None:
    said = run(inside, torch_python, WITHOUT_MIOPEN, miopen=False)

    assert said == {
        "at_first": False,
        "after_the_script_set_it": False,
        "in_a_context": False,
        "a_convolution_learns": True,
    }
    assert outcomes(inside) == [("miopen", "applied", "torch.backends.cudnn.enabled = False")]
