"""What a training computes with: products, convolutions, attention, compiled models.

Bounds are relative to the largest value of the reference. Take C = A B with k terms in each sum,
entries of A and B normal. Rounding errors that are as good as random add up to at most about
sqrt(k) eps |A||B| (Higham and Mary 2019), and |A||B| is about 0.64 k where the largest |C| is about
4.5 sqrt(k): that is 0.14 k eps. We allow k eps, seven times that. float16 and bfloat16 are added up
in float32, and what is rounded to the short type is the result, and where the sum is split its
parts: each costs eps / 2, and we allow four of them.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import Any

from .experiment import Experiment, NotHere

TF32_EPS = 2.0**-10  # ten bits of mantissa
ON_GPU, ON_CPU = 1024, 192  # rows and columns of a matrix
ONLY_TF32 = ("gfx94",)  # of AMD's, those with matrix cores for it


def accumulated(torch: Any, kind: Any, terms: int) -> float:
    """Return how far a sum of products in this type may be from the right one."""
    single = float(torch.finfo(torch.float32).eps)
    if kind in (torch.float32, torch.float64):
        return float(terms * torch.finfo(kind).eps)
    return float(2 * torch.finfo(kind).eps + terms * single)


def matmul_gradient(trial: Experiment) -> None:
    torch, precision = trial.torch, trial.arguments["precision"]
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    if precision == "tf32":
        _use_tf32(trial)
    elif hasattr(torch.backends, "cuda"):
        torch.backends.cuda.matmul.allow_tf32 = False
    size = ON_GPU if trial.device == "cuda" else ON_CPU
    generator = torch.Generator().manual_seed(0)
    a, b, upstream = (
        torch.randn(size, size, generator=generator).to(kind).to(trial.device) for _ in range(3)
    )
    exact = [each.to("cpu", torch.float64) for each in (a, b, upstream)]
    product, into_a, into_b = exact[0] @ exact[1], exact[2] @ exact[1].T, exact[0].T @ exact[2]
    bound = accumulated(torch, kind, size)
    if precision == "tf32":
        bound += 4 * TF32_EPS  # both factors may be cut off, each by eps; twice for the spread
    a.requires_grad_()
    b.requires_grad_()
    for _ in trial.tries():
        a.grad = b.grad = None
        found = a @ b
        found.backward(upstream)
        trial.compare(found, product, bound, f"{precision} product")
        trial.compare(a.grad, into_a, bound, f"{precision} gradient of the first factor")
        trial.compare(b.grad, into_b, bound, f"{precision} gradient of the second factor")


def convolution_gradient(trial: Experiment) -> None:
    torch = trial.torch
    torch.backends.cudnn.allow_tf32 = False
    images, inputs, outputs, side, window = 4, 8, 16, 24, 3
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(images, inputs, side, side, generator=generator)
    weight = torch.randn(outputs, inputs, window, window, generator=generator)
    upstream = torch.randn(images, outputs, side, side, generator=generator)
    exact_x, exact_weight = (each.double().requires_grad_() for each in (x, weight))
    reference = torch.nn.functional.conv2d(exact_x, exact_weight, padding=1)
    reference.backward(upstream.double())
    x, weight, upstream = (each.to(trial.device) for each in (x, weight, upstream))
    x.requires_grad_()
    weight.requires_grad_()
    # Four times what a plain sum may lose: MIOpen has Winograd kernels, which lose more.
    terms = window * window * inputs
    forward = 4 * accumulated(torch, torch.float32, terms)
    back = 4 * accumulated(torch, torch.float32, window * window * outputs)
    into_weight = 4 * accumulated(torch, torch.float32, images * side * side)
    for _ in trial.tries():
        x.grad = weight.grad = None
        found = torch.nn.functional.conv2d(x, weight, padding=1)
        found.backward(upstream)
        trial.compare(found, reference, forward, "convolution")
        trial.compare(x.grad, exact_x.grad, back, "gradient of the images")
        trial.compare(weight.grad, exact_weight.grad, into_weight, "gradient of the weights")


def _use_tf32(trial: Experiment) -> None:
    torch = trial.torch
    if trial.device == "cpu":
        raise NotHere("no GPU")
    if torch.version.hip:
        name = torch.cuda.get_device_properties(0).gcnArchName
        if not name.startswith(ONLY_TF32):
            raise NotHere(f"{name.partition(':')[0]} has no tf32")
    torch.backends.cuda.matmul.allow_tf32 = True


BATCH, HEADS, LENGTH, HEAD_WIDTH = 2, 4, 96, 32
LENGTH_ON_GPU = 512  # tokens
NAMES = {"math": "MATH", "efficient": "EFFICIENT_ATTENTION", "flash": "FLASH_ATTENTION"}
NONE = ("No available kernel", "No viable backend")


def attention_backward(trial: Experiment) -> None:
    torch = trial.torch
    kind = _kind(trial)
    length = LENGTH_ON_GPU if trial.device == "cuda" else LENGTH
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(BATCH, HEADS, length, HEAD_WIDTH, generator=generator).to(kind)
        for _ in range(4)
    ]
    exact = [each.double().requires_grad_() for each in inputs]
    reference = _plain(torch, *exact[:3])
    reference.backward(exact[3].detach())
    query, key, value, upstream = (each.to(trial.device) for each in inputs)
    for each in (query, key, value):
        each.requires_grad_()
    # Each output is a mean over tokens, so that errors do not grow with their number. What is
    # rounded to the type on the way is the scores, the weights, the result, and going backward
    # the same again and a difference of two: eps / 2 each, and we allow sixteen and thirty-two.
    # Scores are sums of HEAD_WIDTH products in float32, with eps of that type for each.
    eps, single = (float(torch.finfo(each).eps) for each in (kind, torch.float32))
    forward, back = 8 * eps + HEAD_WIDTH * single, 16 * eps + 2 * HEAD_WIDTH * single
    leaves = (("query", query, exact[0]), ("key", key, exact[1]), ("value", value, exact[2]))
    with only(torch, trial.arguments["backend"]):
        for _ in trial.tries():
            query.grad = key.grad = value.grad = None
            found = torch.nn.functional.scaled_dot_product_attention(query, key, value)
            found.backward(upstream)
            trial.compare(found, reference, forward, "attention")
            for name, leaf, right in leaves:
                trial.compare(leaf.grad, right.grad, back, f"gradient of the {name}")


@contextlib.contextmanager
def only(torch: Any, name: str) -> Iterator[None]:
    """Let attention use this kernel and no other."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415
    except ImportError:
        raise NotHere(f"torch {torch.__version__} does not let one choose the kernel") from None
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel([getattr(SDPBackend, NAMES[name])]):
                yield
        except RuntimeError as error:
            if not any(text in str(error) for text in NONE):
                raise
            why = [str(each.message).partition(" (Triggered")[0] for each in heard]
            reason = f": {why[-1]}" if why else ""
            raise NotHere(f"this device has no {name} kernel{reason}") from None


def _kind(trial: Experiment) -> Any:
    torch = trial.torch
    if trial.device == "cpu":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def _plain(torch: Any, query: Any, key: Any, value: Any) -> Any:
    scores = query @ key.transpose(-2, -1) / HEAD_WIDTH**0.5
    return torch.softmax(scores, -1) @ value


LACKS = {
    "InvalidCxxCompiler": "no C++ compiler",
    "Python.h": "no headers of Python, which compiled code needs",
    "TritonMissing": "no triton",
    "Cannot find a working triton installation": "no triton",
}


def compiled(trial: Experiment) -> None:
    """Compile a small model, and compare it with itself as it was."""
    # Nothing compiled before is used, and nothing is left behind.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(trial.folder, "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(trial.folder, "triton")
    torch = trial.torch
    if not hasattr(torch, "compile"):
        raise NotHere(f"torch {torch.__version__} has no torch.compile")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 16)
    ).to(trial.device)
    x = torch.randn(32, 64).to(trial.device)
    exact = net(x)
    exact.pow(2).sum().backward()
    reference = exact.detach().double()
    gradients = [each.grad.detach().double() for each in net.parameters()]
    faster = torch.compile(net)
    bound = 128 * float(torch.finfo(torch.float32).eps)  # 128 terms, in another order
    for _ in trial.tries():
        net.zero_grad()
        found = _first(faster, x)
        found.pow(2).sum().backward()
        trial.compare(found, reference, bound, "compiled model")
        for one, other in zip(net.parameters(), gradients):
            trial.compare(one.grad, other, 4 * bound, "gradient of the compiled model")


def _first(faster: Any, x: Any) -> Any:
    try:
        return faster(x)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        for mark, lack in LACKS.items():
            if mark in text:
                raise NotHere(lack) from None
        raise
