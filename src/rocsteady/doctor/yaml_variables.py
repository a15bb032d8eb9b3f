"""Which variables compose and Kubernetes files set, for each service or container.

PyYAML composes nodes, which know their lines; nothing is constructed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from rocsteady.doctor.shell_variables import NAME, Assignment, Step, shell_value
from rocsteady.errors import ExaminationError

MERGE, NULL = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:null"
Environment = dict[str, tuple[str | None, int]]  # a name to its value and line


def yaml_steps(text: str) -> Iterator[Step]:
    """Read ``environment:`` of compose files, and Kubernetes' ``env:``, of each service."""
    reader = _Reader()
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        parts = [part for document in documents for part in reader.parts(document, "")]
    except RecursionError:
        raise ExaminationError("nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ExaminationError(f"{where}{error.problem}") from None
    except yaml.YAMLError as error:
        raise ExaminationError(str(error).splitlines()[0]) from None
    several = len({part for part, _ in parts}) > 1
    for part, environment in parts:
        for name, (value, line) in environment.items():
            known = None if value is None else shell_value(value)
            yield Assignment(name, known, f"line {line}", part=part if several else "")


class _Reader:
    """Walks the nodes of a file, each once: an alias is the node that it names."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._mappings: dict[int, dict[str, yaml.Node]] = {}

    def parts(self, node: yaml.Node | None, label: str) -> Iterator[tuple[str, Environment]]:
        """Yield what each mapping sets that has an environment, with the name of the mapping."""
        if node is None or id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                yield from self.parts(item, self._name(item, label))
        fields = self._fields(node)
        for key, child in fields.items():
            if key in ("environment", "env"):
                yield label, self._environment(child)
            elif not key.startswith("x-"):
                extended = self._extended(child, fields)
                if extended is not None:
                    yield key, self._environment(extended)
                yield from self.parts(child, self._name(child, key))

    def _fields(self, node: yaml.Node | None) -> dict[str, yaml.Node]:
        """Return a mapping by its keys, with what is merged into it; {} for other nodes."""
        if not isinstance(node, yaml.MappingNode):
            return {}
        if id(node) not in self._mappings:
            self._mappings[id(node)] = {}  # for a node that is merged into itself
            merged: dict[str, yaml.Node] = {}
            own: dict[str, yaml.Node] = {}
            for key, value in node.value:
                if key.tag == MERGE:
                    several = isinstance(value, yaml.SequenceNode)
                    for other in value.value if several else [value]:
                        merged = {**self._fields(other), **merged}
                elif isinstance(key, yaml.ScalarNode):
                    own[key.value] = value
            self._mappings[id(node)] = {**merged, **own}
        return self._mappings[id(node)]

    def _name(self, node: yaml.Node, otherwise: str) -> str:
        return _text(self._fields(node).get("name")) or otherwise

    def _extended(self, service: yaml.Node, services: dict[str, yaml.Node]) -> yaml.Node | None:
        """Return the environment of the service of the same file that this one extends."""
        extends = self._fields(service).get("extends")
        base = _text(extends) or _text(self._fields(extends).get("service"))
        return self._fields(services.get(base or "")).get("environment")

    def _environment(self, node: yaml.Node) -> Environment:
        found: Environment = {}
        for name, value in self._fields(node).items():
            if isinstance(value, yaml.ScalarNode):
                found[name] = _text(value), _line(value)
        for item in node.value if isinstance(node, yaml.SequenceNode) else ():
            fields = self._fields(item)
            if fields:  # Kubernetes
                name = _text(fields.get("name")) or ""
                found[name] = _text(fields.get("value")), _line(fields.get("value", item))
            elif text := _text(item):
                name, equals, after = text.partition("=")
                found[name] = after if equals else None, _line(item)
        return {name: value for name, value in found.items() if re.fullmatch(NAME, name)}


def _text(node: yaml.Node | None) -> str | None:
    """Return the text of a value; None if there is none."""
    if not isinstance(node, yaml.ScalarNode) or node.tag == NULL:
        return None
    return str(node.value)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
