"""What one strategy changes against another, by the names of its settings."""

from __future__ import annotations

from rocsteady.model import Strategy

WORKERS, THREAD = "workers", "loader_thread"
SAID = {
    ("compile", True): "compiled",
    ("autocast", "bf16"): "bf16 (autocast)",
    ("miopen", False): "MIOpen off",
    ("flush_denormal", True): "subnormals treated as 0",
}


def changed(before: Strategy, after: Strategy) -> tuple[str, ...]:
    """Return the settings that differ, each variable by its own name.

    The thread that loads ahead is part of "no workers", and not a setting of its own.
    """
    fields = (name for name in Strategy.__struct_fields__ if name != "variables")
    names = [
        WORKERS if name == THREAD else name
        for name in fields
        if getattr(before, name) != getattr(after, name)
    ]
    old, new = before.variables, after.variables
    names += sorted(
        name
        for name in {*old, *new}
        if (name in old, old.get(name)) != (name in new, new.get(name))
    )
    return tuple(dict.fromkeys(names))


def told(before: Strategy, after: Strategy) -> str:
    """Say the change as one would type it: "attention=math", "HSA_XNACK unset"."""
    return ", ".join(_words(name, after) for name in changed(before, after))


def _words(name: str, strategy: Strategy) -> str:
    if name in Strategy.__struct_fields__:
        value = getattr(strategy, name)
        if (name, value) in SAID:
            return SAID[name, value]
        ahead = " and one thread" if name == WORKERS and strategy.loader_thread else ""
        return f"{name}={_plain(value)}{ahead}"
    if name not in strategy.variables:
        return f"{name} restored"
    value = strategy.variables[name]
    return f"{name} unset" if value is None else f"{name}={value}"


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "off" if value is False else str(value)
