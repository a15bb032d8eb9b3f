"""May this user use the GPU? The device nodes themselves decide, not the group names."""

from __future__ import annotations

from rocsteady.machine.root import User
from rocsteady.machine.view import View
from rocsteady.model import Value

KFD, DRI = "/dev/kfd", "/dev/dri"


class Node(Value, frozen=True, kw_only=True):
    """One device node and what the user may do with it."""

    path: str
    mode: str
    group: str  # its name where that is known, else the number
    usable: bool  # readable and writable, which is what ROCm needs


class Access(Value, frozen=True, kw_only=True):
    """The device nodes that ROCm opens. None: could not be told here."""

    kfd: Node | None
    kfd_known: bool  # False: a copied folder cannot say
    render: tuple[Node, ...]
    user: User | None


def read_access(view: View) -> Access:
    """Look at /dev/kfd and the render nodes with the rights of whoever runs this."""
    user = view.user
    minors = (name for name in view.names(DRI) if name.startswith("renderD"))
    nodes = (_node(view, f"{DRI}/{name}", user) for name in minors)
    return Access(
        kfd=_node(view, KFD, user),
        kfd_known=user is not None,
        render=tuple(node for node in nodes if node),
        user=user,
    )


def _node(view: View, path: str, user: User | None) -> Node | None:
    device = view.device(path)
    if device is None:
        return None
    groups = user.groups if user else {}
    gid = str(device.gid)
    return Node(
        path=path,
        mode=device.mode,
        group=groups.get(gid, gid),
        usable=device.access == "rw",
    )
