"""What one strategy changes against another, by the names of its settings."""

from __future__ import annotations

from rocsteady.model import Strategy

DESCRIPTIONS = {
    ("miopen", False): "MIOpen off",
    ("checkpoints_back", 1): "one checkpoint earlier",
}
# As PyTorch names them, where that differs.
NAMES = {"workers": "num_workers", "worker_context": "multiprocessing_context"}


def changed(before: Strategy, after: Strategy) -> tuple[str, ...]:
    """Return the settings that differ, each variable by its own name."""
    fields = (name for name in Strategy.__struct_fields__ if name != "variables")
    names = [name for name in fields if getattr(before, name) != getattr(after, name)]
    old, new = before.variables, after.variables
    names += sorted(
        name
        for name in {*old, *new}
        if (name in old, old.get(name)) != (name in new, new.get(name))
    )
    return tuple(names)


def describe_changes(before: Strategy, after: Strategy) -> str:
    """Return the change as one would type it: "attention=math", "HSA_XNACK unset"."""
    return ", ".join(_description(name, after) for name in changed(before, after))


def _description(name: str, strategy: Strategy) -> str:
    if name in Strategy.__struct_fields__:
        value = getattr(strategy, name)
        return DESCRIPTIONS.get((name, value), f"{NAMES.get(name, name)}={_plain(value)}")
    if name not in strategy.variables:
        return f"{name} restored"
    value = strategy.variables[name]
    return f"{name} unset" if value is None else f"{name}={value}"


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "off" if value is False else str(value)
