"""Products of matrices and convolutions with their gradients, against float64.

Bounds are relative to the largest value of the reference. Take C = A B with k terms in each sum,
entries of A and B normal. Rounding errors that are as good as random add up to at most about
sqrt(k) eps |A||B| (Higham and Mary 2019), and |A||B| is about 0.64 k where the largest |C| is about
4.5 sqrt(k): that is 0.14 k eps. We allow k eps, seven times that. float16 and bfloat16 are added up
in float32, and what is rounded to the short type is the result, and where the sum is split its
parts: each costs eps / 2, and we allow four of them.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """Multiply two matrices, and go backward."""
    step = matmul_step(trial, trial.arguments["precision"])
    for _ in trial.tries():
        step()


def matmul_step(trial: Experiment, precision: str) -> Callable[[], None]:
    """Return what does it once."""
    torch = trial.torch
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
    product, into_a, into_b = (
        exact[0] @ exact[1],
        exact[2] @ exact[1].T,
        exact[0].T @ exact[2],
    )
    bound = accumulated(torch, kind, size)
    if precision == "tf32":
        bound += 4 * TF32_EPS  # both factors may be cut off, each by eps; twice for the spread
    a.requires_grad_()
    b.requires_grad_()

    def step() -> None:
        a.grad = b.grad = None
        found = a @ b
        found.backward(upstream)
        trial.compare(found, product, bound, f"{precision} product")
        trial.compare(a.grad, into_a, bound, f"{precision} gradient of the first factor")
        trial.compare(b.grad, into_b, bound, f"{precision} gradient of the second factor")

    return step


def convolution_gradient(trial: Experiment) -> None:
    """Convolve images, and go backward."""
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
