"""Write a script that makes one call of an operator, from the inputs that were kept of it.

Run by path with the user's Python, as ``reproduction.py INPUTS TARGET random|values KIND CODE``.
Statistics are taken with Python's own numbers, since an operator of this torch is under suspicion.
"""

import math
import sys
from collections.abc import Iterable
from typing import Any

import torch

NUMBERS = "computes wrong numbers"
SAMPLE = 100_000  # elements that the statistics of a tensor are taken of
WIDTH = 92  # columns of the arguments
CALLS = 20  # of what hangs or crashes now and then
LISTED = 3  # tensors of a list; more are in the file
BOUNDS = {"float64": 1e-9, "float32": 1e-3, "float16": 5e-3, "bfloat16": 2.5e-2}
HEAD = """# {title}
# To run it on the CPU in float64: python {file} exact. Exit code {wrong}: wrong numbers.
import sys
import torch
"""
TENSOR = """
def tensor(shape, stride, dtype, low, high, mean=0.0, std=1.0):
    size = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
    if dtype.is_floating_point:
        flat = (torch.randn(size, dtype=torch.float64) * std + mean).clamp(low, high)
    else:
        flat = torch.randint(low, high + 1, (size,))
    return flat.to(kind(dtype)).to(device).as_strided(shape, stride)
"""
LOADED = """
def made(value):
    if isinstance(value, dict) and "flat" in value:
        flat = value["flat"].to(kind(value["flat"].dtype)).to(device)
        return flat.as_strided(value["shape"], value["stride"])
    if isinstance(value, dict) and "torch" in value:
        name = value["torch"].partition(".")[2]
        found = torch.device(device) if name.startswith("device") else getattr(torch, name, None)
        return kind(found) if isinstance(found, torch.dtype) else found
    return [made(each) for each in value] if isinstance(value, list) else value
"""
SETTING = """
exact = "exact" in sys.argv
device = "cpu" if exact else "{device}"
kind = lambda dtype: torch.float64 if exact and dtype.is_floating_point else dtype
"""
RUN = """print("torch", torch.__version__, "calls {name}", flush=True)
args, kwargs = inputs()
{repeated}result = torch.ops.{operator}(*args, **kwargs)
"""
COMPARE = """exact, device = True, "cpu"
flat = lambda x: sum(map(flat, x), []) if isinstance(x, (list, tuple)) else [x]
given, named = inputs()
expected = flat(torch.ops.{operator}(*given, **named)) + flat(given)
pairs = zip(flat(result) + flat(args), expected)
pairs = [(a, b) for a, b in pairs if isinstance(b, torch.Tensor) and b.is_floating_point()]
least = 1e-2 * max(float(b.norm()) for _, b in pairs) + 1e-30  # what cancels out has less
errors = [float((a.double().cpu() - b).norm() / b.norm().clamp(min=least)) for a, b in pairs]
worst = max(error if error == error else 9e9 for error in errors)
print(f"relative error {{worst:.3g}}")
sys.exit(0 if worst < {bound} else {wrong})
"""


def main(inputs: str, target: str, values: str, failure: str, wrong: str) -> None:
    kept = torch.load(inputs, weights_only=True)
    operator = f"{kept['name'].replace('::', '.')}.{kept['overload'] or 'default'}"
    tensors = list(tensors_of([kept["args"], kept["kwargs"]]))
    device = next((each["device"] for each in tensors if each["device"] != "cpu"), "cpu")
    floats = [each["dtype"] for each in tensors if each["dtype"] in BOUNDS]
    bound = max((BOUNDS[name] for name in floats), default=1e-3)
    shapes = ", ".join(f"{each['dtype']} {each['shape']}" for each in tensors[:4])
    title = f"{kept['name']} {failure}: {shapes}"[:96]
    file = target.rpartition("/")[2]
    filled = {"title": title, "file": file, "wrong": wrong, "device": device, "name": kept["name"]}
    script = HEAD.format(**filled) + SETTING.format(**filled)
    if values == "values":
        beside = inputs.rpartition("/")[2]
        script += LOADED + "\ndef inputs():\n"
        script += f'    saved = torch.load("{beside}", weights_only=True)\n'
        script += (
            '    return made(saved["args"]), {n: made(v) for n, v in saved["kwargs"].items()}\n'
        )
    else:
        script += TENSOR + "\ndef inputs():\n    torch.manual_seed(0)\n"
        script += "    return [\n"
        script += "".join(f"        {line}\n" for line in packed(map(spelt, kept["args"])))
        script += f"    ], {spelt(kept['kwargs'])}\n"
    several = "" if failure == NUMBERS else f"for _ in range({CALLS}):\n    "
    script += "\n" + RUN.format(**filled, operator=operator, repeated=several)
    if device != "cpu":
        script += "    " if several else ""
        script += f"torch.{'cuda' if device == 'cuda' else 'accelerator'}.synchronize()\n"
    if failure == NUMBERS:
        script += COMPARE.format(operator=operator, bound=bound, wrong=wrong)
    with open(target, "w", encoding="utf-8") as stream:
        stream.write(script)


def packed(parts: Iterable[str]) -> list[str]:
    """Return the arguments in lines, none of them broken."""
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part) > WIDTH:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{part},"
    return lines


def tensors_of(value: Any) -> Any:
    if isinstance(value, dict) and "flat" in value:
        yield value
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))
    elif isinstance(value, list):
        for each in value:
            yield from tensors_of(each)


def spelt(value: Any) -> str:
    """Spell a value as Python; a tensor by what it takes to draw one like it."""
    if isinstance(value, dict) and "flat" in value:
        return drawn(value)
    if isinstance(value, dict) and "torch" in value:
        return of_torch(value["torch"])
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {spelt(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(spelt, value[:LISTED] if _is_list(value) else value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def of_torch(name: str) -> str:
    if name.startswith("torch.device"):
        return "torch.device(device)"
    return f"kind({name})" if isinstance(getattr(torch, name[6:], None), torch.dtype) else name


def _is_list(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(each, dict) and "flat" in each for each in value)


def drawn(value: dict[str, Any]) -> str:
    flat, dtype = value["flat"], value["dtype"]
    start = f"tensor({value['shape']}, {value['stride']}, torch.{dtype}"
    sample = flat[:SAMPLE].tolist()
    if dtype not in BOUNDS:
        return f"{start}, {int(min(sample, default=0))}, {int(max(sample, default=0))})"
    finite = [each for each in sample if math.isfinite(each)] or [0.0]
    mean = sum(finite) / len(finite)
    std = math.sqrt(sum((each - mean) ** 2 for each in finite) / len(finite))
    return f"{start}, {min(finite):.4g}, {max(finite):.4g}, {mean:.4g}, {std:.4g})"


if __name__ == "__main__":
    main(*sys.argv[1:])
