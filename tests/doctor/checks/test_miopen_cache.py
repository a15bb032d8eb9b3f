"""A cache that is off, forgotten, unwritable or far away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.checks import miopen_cache
from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import gather
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.rocm import Cache
from rocsteady.doctor.machine.root import Disk
from rocsteady.doctor.machine.system import SetVariable

if TYPE_CHECKING:
    from tests.conftest import Recorded

HOME = "/home/user/.cache/miopen"
LOCAL = Disk(total=10, free=5, filesystem="ext4", writable=True)


def seen(recorded: Recorded, machine: Machine) -> Seen:
    facts = gather(machine, recorded.knowledge)
    return miopen_cache(machine, facts, recorded.knowledge)


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


def test_a_copied_folder_cannot_tell(recorded: Recorded) -> None:
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), variables_known=False)

    with pytest.raises(CannotTell, match="MIOPEN_DISABLE_CACHE"):
        seen(recorded, machine)
