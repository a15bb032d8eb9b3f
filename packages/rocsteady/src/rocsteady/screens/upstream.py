"""A draft of a report for ROCm/ROCm, ROCm/TheRock or pytorch/pytorch, with the fields they ask for.

The fields are those of ROCm/.github's issue_report.yml and of PyTorch's bug-report.yml, as of
November 2026. TheRock has no form of its own that we found: its issues follow ROCm's headings.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.torch_build import made_by
from rocsteady.model import ProbeOutcome, Value
from rocsteady.probe.cause_search import Cause
from rocsteady.probe.values import VERBS
from rocsteady.screens.cause_search import cure_in_words, described
from rocsteady.store.redaction import Redactor, shown_command

LOG_LINES = 60  # of the script's end, and of the kernel log
EXPECTED = {
    ProbeOutcome.HANG: "The call returns.",
    ProbeOutcome.CRASH: "The call returns.",
    ProbeOutcome.EXCEPTION: "The call returns, as it does on the CPU.",
    ProbeOutcome.WRONG: "The same numbers as in float64 on the CPU, but for rounding.",
}


class Upstream(Enum):
    ROCM = "ROCm/ROCm"
    THEROCK = "ROCm/TheRock"
    PYTORCH = "pytorch/pytorch"


class Surroundings(Value, frozen=True, kw_only=True):
    processor: str = ""
    rocminfo: str = ""  # output of `rocminfo --support`
    collect_env: str = ""  # output of `python -m torch.utils.collect_env`
    doctor: str = ""  # the block of `rocsteady machine`
    kernel: tuple[str, ...] = ()  # its log since the probe began


def upstream_of(cause: Cause, machine: Machine) -> tuple[Upstream, str]:
    """Return where a report belongs, and why."""
    on_gpu = cause.operation is not None and cause.operation.device != "cpu"
    build = machine.torch
    if not on_gpu or build is None or build.build != "rocm":
        return Upstream.PYTORCH, "the operation did not run on an AMD GPU"
    if made_by(build) == "amd":
        return Upstream.THEROCK, "this torch is AMD's own build, which is made there"
    return Upstream.ROCM, "it fails on an AMD GPU with a build of pytorch.org, and works on the CPU"


def render_report(cause: Cause, machine: Machine, around: Surroundings, redactor: Redactor) -> str:
    """Return the whole as Markdown, redacted."""
    place, why = upstream_of(cause, machine)
    parts = _of_pytorch if place is Upstream.PYTORCH else _of_rocm
    head = [
        f"<!-- Draft for {place.value}: {why}.",
        "     Read it, check it, search for the same issue there,",
        "     remove what should not be public, and send it yourself. Names and secrets that were",
        "     recognized are replaced; nobody has read what is in the output of the script. -->",
        "",
    ]
    if cause.staged:
        head += ["**A STAGED FAULT: put there for a rehearsal. Do not send this.**", ""]
    return redactor.text("\n".join([*head, *parts(cause, machine, around)]) + "\n")


def _of_rocm(cause: Cause, machine: Machine, around: Surroundings) -> Iterator[str]:
    system, gpus = machine.system, machine.gpus.gpus
    rocm = [install.version for install in machine.rocm if install.version]
    torch = machine.torch.version if machine.torch else "none"
    yield f"# [Issue]: {summary(cause)}"
    yield from _section("Problem Description", *_problem(cause))
    yield from _section("Operating System", f"{system.distribution}, kernel {system.kernel}")
    yield from _section("CPU", around.processor or "not told")
    named = [f"{gpu.name or 'GPU'} ({gpu.gfx or 'unknown'})" for gpu in gpus]
    yield from _section("GPU", ", ".join(named) or "none")
    yield from _section("ROCm Version", f"{', '.join(rocm) or 'none installed'}; torch {torch}")
    yield from _section("ROCm Component", _component(cause))
    yield from _section("Steps to Reproduce", *_steps(cause))
    yield from _section("Output of rocminfo --support", *_block(around.rocminfo or "no rocminfo"))
    yield from _section("Additional Information", *_more(cause, around))
    yield from _block(around.collect_env or "torch.utils.collect_env could not be run")


def _of_pytorch(cause: Cause, machine: Machine, around: Surroundings) -> Iterator[str]:
    del machine
    yield f"# {summary(cause)}"
    yield from _section("Describe the bug", *_problem(cause), "", *_steps(cause))
    yield from _section("Versions", *_block(around.collect_env or "could not be run"))
    yield from _section("Additional Information", *_more(cause, around))


def summary(cause: Cause) -> str:
    if cause.operation is None:
        return "training fails"
    verb = VERBS.get(cause.reproducing.outcome, "fails")
    return f"{cause.operation.name} {verb} ({', '.join(cause.operation.tensors[:2])})"


def _problem(cause: Cause) -> Iterator[str]:
    tries, operation, made = cause.reproducing, cause.operation, cause.reproduction
    rate = f"{tries.failed} of {len(tries.tries)}"
    yield f"A training script fails in {rate} tries, with serialized kernels."
    if operation is not None:
        yield f"It fails in this operation: `{described(operation)}`, {operation.phase}."
        yield from ([f"Numbers: {cause.how}."] if cause.how else [])
    if made is not None:
        alone = f"{made.alone.failed} of {len(made.alone.tries)}"
        yield f"Alone it fails in {alone} tries (script below)."
    yield ""
    yield f"**Expected:** {EXPECTED.get(tries.outcome, 'The training goes on.')}"
    yield ""
    last = next((each for each in tries.tries if each.title), None)
    verb = VERBS.get(tries.outcome, "fails")
    yield f"**Actual:** it {verb}{f': {last.title}' if last else ''}"
    tail = (made.alone.tries[0].log if made else "").splitlines()
    if tail:
        yield from _block("\n".join(tail[-LOG_LINES:]))


def _steps(cause: Cause) -> Iterator[str]:
    made = cause.reproduction
    if made is None:
        why = cause.not_reproduced or "none was found"
        yield f"There is no script of the operation alone: {why}."
        yield f"The training is started as `{shown_command(cause.command)}`."
        return
    beside = " with inputs.pt beside it (the call's own inputs; attach it)" if made.values else ""
    yield f"`python repro.py`{beside}. `python repro.py exact` makes the same call on the CPU in"
    yield "float64, which works."
    yield from _block(made.text, "python")


def _component(cause: Cause) -> str:
    name = cause.operation.name if cause.operation else ""
    known = {"convolution": "MIOpen", "batch_norm": "MIOpen", "mm": "hipBLASLt, rocBLAS"}
    known["attention"] = "AOTriton, or composable kernel"
    found = [component for part, component in known.items() if part in name]
    return f"{found[0]} (a guess from the operator)" if found else "not known"


def _more(cause: Cause, around: Surroundings) -> Iterator[str]:
    yield "What was tried, one at a time (tries that worked):"
    yield ""
    for cure in cause.cures:
        yield f"- {cure_in_words(cure)}{'' if cure.alone else ' (the script)'}"
    if cause.cure is None:
        yield "- nothing of this helped" if cause.cures else "- nothing else"
    yield ""
    yield "Kernel log since the first try:"
    yield from _block("\n".join(around.kernel[-LOG_LINES:]) or "nothing, or it could not be read")
    yield from ([around.doctor] if around.doctor else [])


def _section(title: str, *lines: str) -> Iterator[str]:
    yield from ("", f"### {title}", "", *lines)


def _block(text: str, language: str = "text") -> Iterator[str]:
    fence = "````" if "```" in text else "```"
    yield from (f"{fence}{language}", text.rstrip("\n"), fence)
