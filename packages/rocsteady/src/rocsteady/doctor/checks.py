"""Checks that data cannot say. A rule's condition names one by its name with hyphens.

A check returns what it saw, one line each, and nothing if all is well; it raises ``CannotTell``
with the name of a fact it would have needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import Facts
from rocsteady.doctor.knowledge.gpu_names import gfx_of
from rocsteady.doctor.knowledge.library_contents import gone_from, is_in_a_library, nearest
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.rocm import Cache
from rocsteady.doctor.machine.system import listed
from rocsteady.doctor.training_gpus import (
    READ_FIRST,
    SECOND,
    beyond,
    effect,
    entries,
    has_code,
    overridden,
    second,
    settings,
    trainable,
)
from rocsteady.store.location import NETWORK


# For which GPUs the installed torch has code. Beside a card, the processor's own graphics do
# not count: they are to be hidden, not trained on. An override within a family that leads to
# code the wheel has is a risk of its own, told elsewhere; it is not the same as having no code.
class Code(NamedTuple):
    there: tuple[str, ...]
    lacking: tuple[str, ...]


def gpu_code(machine: Machine, facts: Facts, knowledge: Knowledge) -> Code:
    for name in ("gpu.gfx", "torch.build", "torch.arches"):
        if facts.why_unknown(name):
            raise CannotTell(name)
    arches = {str(arch) for arch in facts.values("torch.arches")}
    there: dict[str, None] = {}
    lacking: dict[str, None] = {}
    for gpu in trainable(machine):
        gfx, override = gfx_of(gpu, knowledge), overridden(machine, gpu)
        if gfx is None:
            continue
        passes = override in arches and effect(gfx, override, knowledge) == "within-family"
        (there if passes or has_code(gfx, arches, knowledge) else lacking)[gfx] = None
    return Code(there=tuple(there), lacking=tuple(lacking))


# No GPU here has code in the installed torch.
def wheel_lacks_arch(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    code = gpu_code(machine, facts, knowledge)
    return () if code.there else code.lacking


# Some GPUs here have code in the installed torch, and others have not.
def wheel_lacks_one_arch(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    code = gpu_code(machine, facts, knowledge)
    return code.lacking if code.there else ()


# Two filters that leave no GPU, or that PyTorch refuses. It refuses when HIP_VISIBLE_DEVICES
# names more devices than ROCR_VISIBLE_DEVICES left.
def visible_devices_conflict(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    del knowledge
    if machine.system.os != "linux":
        return ()
    if facts.why_unknown(f"variable:{READ_FIRST}"):
        raise CannotTell(f"variable:{READ_FIRST}")
    values = settings(machine)
    name = second(values)
    left, wanted = len(entries(values.get(READ_FIRST, ""))), entries(values.get(name, ""))
    if not left or not wanted:
        return ()
    refused = name == SECOND[0] and len(wanted) > left
    if not refused and not beyond(wanted[0], left):
        return ()
    them = "the GPU" if left == 1 else f"the {left} GPUs"
    return (
        f"{name}={values[name]} numbers {them} left by {READ_FIRST}={values[READ_FIRST]} from 0",
    )


# A list of devices that ends early: the numbers after one that is not there are not read.
def visible_devices_fewer(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    for fact in (f"variable:{READ_FIRST}", "gpu.count"):
        if facts.why_unknown(fact):
            raise CannotTell(fact)
    if visible_devices_conflict(machine, facts, knowledge):
        return ()
    values = settings(machine)
    first = READ_FIRST if machine.system.os == "linux" else ""
    left = len(machine.gpus.gpus)
    seen = []
    for name in (first, second(values)):
        wanted = entries(values.get(name, ""))
        if wanted and not beyond(wanted[0], left) and any(beyond(each, left) for each in wanted):
            seen.append(f"{name}={values[name]}, and {left} to choose from")
        left = min(left, len(wanted)) if wanted else left
    return tuple(seen)


# A variable that nothing reads: one known to be a placebo, one that is gone, or a misspelt one.
# A name that a real ROCm library holds is real, whether or not our list has it. A name that
# nobody knows is not accused, for a library that was not looked at may read it; only a name
# that is one or two letters away from a real one is.
# HSA_ENABLE_SMDA is that near to HSA_ENABLE_SDMA; HIP_PATH is not to HIP_PLATFORM.
SIMILAR_NAME = 0.93


def unknown_variable(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    if not facts.variables_known:
        raise CannotTell("variable:names")
    spoken = (_spoken(variable.name, knowledge) for variable in machine.variables)
    return tuple(name for name in spoken if name)


def _spoken(name: str, knowledge: Knowledge) -> str:
    known = knowledge.variables.get(name)
    if known is not None and not known.read_by:
        return name
    if listed(name, knowledge.variables):
        return ""
    gone = gone_from(name)
    if gone is not None:
        return f"{name} (not in {gone.text})"
    if is_in_a_library(name):
        return ""
    meant = nearest(name, knowledge, SIMILAR_NAME)
    return f"{name} (did you mean {meant}?)" if meant else ""


# A wheel that brings its own ROCm, and another ROCm that would be loaded in its place.
def mixed_rocm_libraries(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    del knowledge
    if not facts.variables_known:
        raise CannotTell("variable:LD_LIBRARY_PATH")
    if not machine.library_shadows:
        return ()
    if machine.torch is None:
        raise CannotTell("torch.build")
    if not machine.torch.bundles_rocm:
        return ()
    return tuple(f"{shadow.folder} ({shadow.libraries[0]})" for shadow in machine.library_shadows)


# MIOpen compiles kernels at first use; a cache that is off or lost makes it do so every time.
ON = ("1", "true", "on", "yes", "enable", "enabled")  # in any case, as MIOpen reads it
CONTENTS = {
    "kernel cache": "the cache of compiled kernels",
    "user database": "the database of tuning results",
}
FORGOTTEN = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - looked for, not written to


def miopen_cache(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    """Return each reason why what MIOpen compiles would not be there next time."""
    del knowledge
    if not facts.variables_known:
        raise CannotTell("variable:MIOPEN_DISABLE_CACHE")
    values = map(str, facts.values("variable:MIOPEN_DISABLE_CACHE"))
    off = "keeps no compiled kernel"
    seen = [f"MIOPEN_DISABLE_CACHE={value} {off}" for value in values if value.lower() in ON]
    seen += [
        f"{CONTENTS[cache.name]} in {cache.path} {trouble}"
        for cache in machine.caches
        if (trouble := _trouble(cache))
    ]
    return tuple(seen)


def _trouble(cache: Cache) -> str:
    if any(cache.path == place or cache.path.startswith(f"{place}/") for place in FORGOTTEN):
        return "does not survive a reboot"
    if cache.disk is None:
        return ""
    if not cache.disk.writable:
        return "cannot be written"
    if cache.disk.filesystem in (*NETWORK, "fuse.sshfs"):
        return f"lies on a network file system ({cache.disk.filesystem})"
    return ""


Check = Callable[[Machine, Facts, Knowledge], Seen]
CHECKS: Mapping[str, Check] = {
    check.__name__.replace("_", "-"): check
    for check in (
        wheel_lacks_arch,
        wheel_lacks_one_arch,
        visible_devices_conflict,
        visible_devices_fewer,
        unknown_variable,
        mixed_rocm_libraries,
        miopen_cache,
    )
}
