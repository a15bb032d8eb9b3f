"""What the checks see, what they do not, and what they cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.checks import (
    miopen_cache,
    mixed_rocm_libraries,
    unknown_variable,
    visible_devices_conflict,
    visible_devices_fewer,
    wheel_lacks_arch,
    wheel_lacks_one_arch,
)
from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import Facts, gather
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.rocm import Cache
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.system.root import Disk

if TYPE_CHECKING:
    from tests.conftest import Recorded

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
HOME = "/home/user/.cache/miopen"
LOCAL = Disk(total=10, free=5, filesystem="ext4", writable=True)
Check = Callable[[Machine, Facts, Knowledge], Seen]


def seen(recorded: Recorded, machine: Machine, check: Check = miopen_cache) -> Seen:
    return check(machine, gather(machine, recorded.knowledge), recorded.knowledge)


def with_cache(recorded: Recorded, path: str, disk: Disk | None) -> Machine:
    cache = Cache(name="kernel cache", path=path, variable="", disk=disk)
    return msgspec.structs.replace(recorded.machine("rx7900xtx"), caches=(cache,))


@pytest.mark.parametrize(
    ("path", "disk", "told"),
    [
        ("/home/user/.cache/miopen", LOCAL, ()),
        ("/home/user/.cache/miopen", None, ()),
        ("/tmp", LOCAL, ("the cache of compiled kernels in /tmp does not survive a reboot",)),
        ("/tmp/m", LOCAL, ("the cache of compiled kernels in /tmp/m does not survive a reboot",)),
        ("/tmpfiles/m", LOCAL, ()),
        (
            "/dev/shm/m",
            LOCAL,
            ("the cache of compiled kernels in /dev/shm/m does not survive a reboot",),
        ),
        (
            "/home/user/.cache/miopen",
            msgspec.structs.replace(LOCAL, writable=False),
            ("the cache of compiled kernels in /home/user/.cache/miopen cannot be written",),
        ),
        (
            "/home/user/.cache/miopen",
            msgspec.structs.replace(LOCAL, filesystem="nfs4"),
            (f"the cache of compiled kernels in {HOME} lies on a network file system (nfs4)",),
        ),
    ],
)
def test_where_the_cache_lies(recorded: Recorded, path: str, disk: Disk | None, told: Seen) -> None:
    assert seen(recorded, with_cache(recorded, path, disk)) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("1", ("MIOPEN_DISABLE_CACHE=1 keeps no compiled kernel",)),
        ("TRUE", ("MIOPEN_DISABLE_CACHE=TRUE keeps no compiled kernel",)),
        ("on", ("MIOPEN_DISABLE_CACHE=on keeps no compiled kernel",)),
        ("0", ()),
        ("", ()),
    ],
)
def test_switched_off_in_any_spelling(recorded: Recorded, value: str, told: Seen) -> None:
    off = SetVariable(name="MIOPEN_DISABLE_CACHE", value=value)
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), variables=(off,), caches=())

    assert seen(recorded, machine) == told


def test_every_trouble_is_told(recorded: Recorded) -> None:
    assert seen(recorded, recorded.machine("rx7900xt-allocator")) == (
        "MIOPEN_DISABLE_CACHE=1 keeps no compiled kernel",
        "the database of tuning results in /tmp/miopen_cache does not survive a reboot",
    )


@pytest.mark.parametrize(
    ("check", "fact"),
    [
        (miopen_cache, "variable:MIOPEN_DISABLE_CACHE"),
        (mixed_rocm_libraries, "variable:LD_LIBRARY_PATH"),
        (unknown_variable, "variable:names"),
        (visible_devices_conflict, f"variable:{ROCR}"),
        (visible_devices_fewer, f"variable:{ROCR}"),
    ],
)
def test_a_copied_folder_cannot_tell(recorded: Recorded, check: Check, fact: str) -> None:
    machine = msgspec.structs.replace(recorded.machine("mixed-libraries"), variables_known=False)

    with pytest.raises(CannotTell) as raised:
        seen(recorded, machine, check)
    assert raised.value.fact == fact


@pytest.mark.parametrize("check", [mixed_rocm_libraries, wheel_lacks_arch, wheel_lacks_one_arch])
def test_without_torch_it_cannot_be_told(recorded: Recorded, check: Check) -> None:
    machine = msgspec.structs.replace(recorded.machine("mixed-libraries"), torch=None)

    with pytest.raises(CannotTell) as raised:
        seen(recorded, machine, check)
    assert raised.value.fact == "torch.build"


def test_a_rocm_in_the_library_path_is_named_with_one_of_its_libraries(recorded: Recorded) -> None:
    machine = recorded.machine("mixed-libraries")

    assert seen(recorded, machine, mixed_rocm_libraries) == ("/opt/rocm/lib (libamdhip64.so)",)


def test_a_rocm_that_nothing_points_at_is_harmless(recorded: Recorded) -> None:
    machine = recorded.machine("rx7900xt-pair")

    assert machine.rocm
    assert seen(recorded, machine, mixed_rocm_libraries) == ()


def test_a_torch_that_uses_the_systems_rocm_is_right_to_do_so(recorded: Recorded) -> None:
    machine = recorded.machine("mixed-libraries")
    assert machine.torch is not None
    torch = msgspec.structs.replace(machine.torch, bundles_rocm=False)

    assert seen(recorded, msgspec.structs.replace(machine, torch=torch), mixed_rocm_libraries) == ()


def unknown(recorded: Recorded, *names: str) -> Seen:
    variables = tuple(SetVariable(name=name, value=None) for name in names)
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), variables=variables)
    return seen(recorded, machine, unknown_variable)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ROCM_ALLOW_HIDDEN_KERNEL_FLAGS", ("ROCM_ALLOW_HIDDEN_KERNEL_FLAGS",)),
        ("HSA_ENABLE_SMDA", ("HSA_ENABLE_SMDA (did you mean HSA_ENABLE_SDMA?)",)),
        ("HSA_ENABLE_SDMA", ()),
        ("HSA_OVERRIDE_GFX_VERSION_1", ()),
        (
            "HSA_OVERIDE_GFX_VERSION",
            ("HSA_OVERIDE_GFX_VERSION (did you mean HSA_OVERRIDE_GFX_VERSION?)",),
        ),
        ("ROCM_MADE_UP_LATER", ()),  # our list may be older than the variable
        ("AMD_LICENCE_KEY", ()),
    ],
)
def test_names_that_nothing_reads(recorded: Recorded, name: str, told: Seen) -> None:
    assert unknown(recorded, name) == told


def test_each_unknown_name_is_told(recorded: Recorded) -> None:
    assert unknown(recorded, "HSA_ENABLE_SMDA", "ROCM_ALLOW_HIDDEN_KERNEL_FLAGS") == (
        "HSA_ENABLE_SMDA (did you mean HSA_ENABLE_SDMA?)",
        "ROCM_ALLOW_HIDDEN_KERNEL_FLAGS",
    )


DEVICES = (visible_devices_conflict, visible_devices_fewer)


@pytest.mark.parametrize(
    ("variables", "conflict", "fewer"),
    [
        ({}, (), ()),
        ({HIP: "0,1"}, (), ()),
        ({ROCR: "0,1", HIP: "0,1"}, (), ()),
        ({ROCR: "4,5", HIP: "1,0"}, (), ()),
        ({ROCR: "0,1", HIP: "GPU-abc"}, (), ()),
        ({ROCR: "", HIP: "0"}, (), ()),
        ({ROCR: "0", HIP: ""}, (), ()),
        (
            {ROCR: "0,1", HIP: "0,1,2"},  # torch raises RuntimeError
            (f"{HIP}=0,1,2 numbers the 2 GPUs left by {ROCR}=0,1 from 0",),
            (),
        ),
        (
            {ROCR: "1", HIP: "1"},  # leaves nothing
            (f"{HIP}=1 numbers the GPU left by {ROCR}=1 from 0",),
            (),
        ),
        ({ROCR: "1", CUDA: "1"}, (f"{CUDA}=1 numbers the GPU left by {ROCR}=1 from 0",), ()),
        ({ROCR: "1", HIP: "0", CUDA: "1"}, (), ()),  # the CUDA name is not read
        (
            {ROCR: "0,1", CUDA: "0,1,2"},  # torch does not refuse this
            (),
            (f"{CUDA}=0,1,2, and 2 to choose from",),
        ),
        ({ROCR: "0,1", HIP: "0,5"}, (), (f"{HIP}=0,5, and 2 to choose from",)),
        ({HIP: "0,1,8"}, (), (f"{HIP}=0,1,8, and 8 to choose from",)),
        ({ROCR: "0,1,8"}, (), (f"{ROCR}=0,1,8, and 8 to choose from",)),
        ({HIP: "-1"}, (), ()),  # hides all, on purpose
        ({HIP: "0,1,-1,2"}, (), (f"{HIP}=0,1,-1,2, and 8 to choose from",)),
    ],
)
def test_eight_cards_and_these_variables(
    recorded: Recorded, variables: dict[str, str], conflict: Seen, fewer: Seen
) -> None:
    machine = having(recorded.machine("mi300x-8"), **variables)

    assert both(recorded, machine, DEVICES) == (conflict, fewer)


def test_windows_does_not_read_the_first_filter(recorded: Recorded) -> None:
    machine = having(recorded.machine("rx9070xt-windows"), **{ROCR: "0", HIP: "0,1"})

    assert both(recorded, machine, DEVICES) == ((), (f"{HIP}=0,1, and 1 to choose from",))


def test_how_many_wsl_has_to_choose_from_cannot_be_told(recorded: Recorded) -> None:
    with pytest.raises(CannotTell, match=r"gpu\.count"):
        both(recorded, recorded.machine("wsl2"), DEVICES)


ARCHES = (wheel_lacks_arch, wheel_lacks_one_arch)


def both(
    recorded: Recorded, machine: Machine, checks: tuple[Check, Check] = ARCHES
) -> tuple[Seen, Seen]:
    return seen(recorded, machine, checks[0]), seen(recorded, machine, checks[1])


def having(machine: Machine, arches: tuple[str, ...] | None = None, /, **variables: str) -> Machine:
    found = tuple(SetVariable(name=name, value=value) for name, value in variables.items())
    changed = msgspec.structs.replace(machine, variables=found)
    if arches is None or machine.torch is None:
        return changed
    torch = msgspec.structs.replace(machine.torch, arches=arches, arches_from="library")
    return msgspec.structs.replace(changed, torch=torch)


@pytest.mark.parametrize(
    ("machine_name", "lacking", "partly"),
    [
        ("rx7900xtx", (), ()),
        ("rx6700xt", ("gfx1031",), ()),
        ("rx5700xt-override", ("gfx1010",), ()),
        ("rx6700xt-override", (), ()),  # runs its sibling's code
        ("rx6900xt-igpu", (), ()),  # gfx1036 is to be hidden, not trained on
        ("rx7900xtx-rx6700xt", (), ("gfx1031",)),
        ("no-amd-gpu", (), ()),
    ],
)
def test_of_recorded_machines(
    recorded: Recorded, machine_name: str, lacking: Seen, partly: Seen
) -> None:
    assert both(recorded, recorded.machine(machine_name)) == (lacking, partly)


def test_a_generic_target_is_code_for_its_family(recorded: Recorded) -> None:
    machine = recorded.machine("rx6700xt")

    assert both(recorded, having(machine, ("gfx10-3-generic",))) == ((), ())
    assert both(recorded, having(machine, ("gfx11-generic",))) == (("gfx1031",), ())


def test_an_override_to_code_that_is_not_there_does_not_help(recorded: Recorded) -> None:
    machine = having(recorded.machine("rx6700xt"), HSA_OVERRIDE_GFX_VERSION="10.3.2")

    assert both(recorded, machine) == (("gfx1031",), ())


def test_a_card_that_is_hidden_does_not_count(recorded: Recorded) -> None:
    machine = recorded.machine("rx7900xtx-rx6700xt")

    assert both(recorded, having(machine, HIP_VISIBLE_DEVICES="0")) == ((), ())
    assert both(recorded, having(machine, HIP_VISIBLE_DEVICES="1")) == (("gfx1031",), ())


@pytest.mark.parametrize(
    ("machine_name", "missing"),
    [("wsl2", "gpu.gfx"), ("old-kernel", "torch.arches"), ("rx9070xt-windows", "torch.arches")],
)
def test_cannot_tell(recorded: Recorded, machine_name: str, missing: str) -> None:
    for check in ARCHES:
        with pytest.raises(CannotTell) as raised:
            seen(recorded, recorded.machine(machine_name), check)
        assert raised.value.fact == missing
