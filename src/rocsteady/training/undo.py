"""What a computation changes besides gradients, kept so that it can be put back.

These are the random generators and the model's buffers, such as the running mean of batch norm.
All of it is kept in the first step. What did not move then is not copied in each step that follows.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

LOOK_AGAIN = 64  # steps, at the generators that take long to read and did not move so far


class Undo:
    """The generators and buffers of one model."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - torch's own
        self._model = model
        self._steps = 0
        self._known = False  # which buffers move
        self._generators: list[Any] = []  # torch's
        self._states: list[Any] = []  # of these
        self._slow: dict[str, Any] = {}  # states of Python's and NumPy's, if kept
        self._moving: set[str] = set()  # of these two, those that were seen to move
        self._places: list[tuple[dict[str, Any], str]] = []  # of the buffers that are kept
        self._buffers: list[Any] = []  # that were in these places
        self._copies: list[Any] = []  # of these
        self._groups: list[tuple[list[Any], list[Any]]] = []  # the same, copied at once
        self._still: list[tuple[dict[str, Any], str, Any, int]] = []  # what did not move

    def keep(self) -> None:
        """Keep all that is known to move, or may."""
        if not self._known:
            self._generators = _generators(self._model)
            self._keep_all_buffers()
        elif self._places:
            self._keep_buffers()
        self._states = [generator.get_state() for generator in self._generators]
        self._slow = {}
        look = self._steps % LOOK_AGAIN == 0
        if look or self._moving:
            self._slow = {
                name: read()
                for name, (read, _) in _slow_generators().items()
                if look or name in self._moving
            }

    def learn(self) -> None:
        """Find out what the computation has moved, which went well."""
        if self._steps % LOOK_AGAIN == 0:
            for name in self._slow.keys() - self._moving:
                if _plain(_slow_generators()[name][0]()) != _plain(self._slow[name]):
                    self._moving.add(name)
        self._steps += 1
        if not self._known:
            self._learn_buffers()
        elif self._still and any(
            place[name] is not buffer or _version(buffer) != version
            for place, name, buffer, version in self._still
        ):
            self._known = False  # all are copied once more

    def back(self) -> None:
        """Put back what was kept. This may be done more than once."""
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_state(state)
        for name, state in self._slow.items():
            _slow_generators()[name][1](state)
        with torch.no_grad():
            for (place, name), buffer, kept in zip(
                self._places, self._buffers, self._copies, strict=True
            ):
                place[name] = buffer
                buffer.copy_(kept)

    def _keep_all_buffers(self) -> None:
        self._places = [
            (module._buffers, name)  # noqa: SLF001 - to see that one was replaced by another
            for module in self._model.modules()
            for name, buffer in module._buffers.items()  # noqa: SLF001
            if buffer is not None
        ]
        self._buffers = [place[name] for place, name in self._places]
        self._copies = [buffer.detach().clone() for buffer in self._buffers]
        self._versions = [_version(buffer) for buffer in self._buffers]

    def _keep_buffers(self) -> None:
        if any(
            place[name] is not buffer
            for (place, name), buffer in zip(self._places, self._buffers, strict=True)
        ):  # replaced by another, perhaps of another shape
            self._buffers = [place[name] for place, name in self._places]
            self._copies = [buffer.detach().clone() for buffer in self._buffers]
            self._groups = _grouped(self._buffers, self._copies)
            return
        with torch.no_grad():
            for copies, buffers in self._groups:
                torch._foreach_copy_(copies, buffers)  # one kernel, not one each

    def _learn_buffers(self) -> None:
        moved: list[int] = []
        self._still = []
        for index, (place, name) in enumerate(self._places):
            buffer, kept = self._buffers[index], self._copies[index]
            if (
                place[name] is not buffer
                or _version(buffer) != self._versions[index]
                or not torch.equal(buffer, kept)  # .data changes without a new version
            ):
                moved.append(index)
            else:
                self._still.append((place, name, buffer, _version(buffer)))
        self._places = [self._places[index] for index in moved]
        self._buffers = [self._buffers[index] for index in moved]
        self._copies = [self._copies[index] for index in moved]
        self._groups = _grouped(self._buffers, self._copies)
        self._known = True


def _generators(model: Any) -> list[Any]:  # noqa: ANN401 - torch's own
    """Return torch's generator, and those of the devices that the model is on."""
    found = [torch.default_generator]
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    for device in devices:
        if device.type in {"cpu", "meta"}:
            continue
        of_all = getattr(torch.get_device_module(device), "default_generators", ())
        found.extend(of_all[device.index or 0 : (device.index or 0) + 1])
    return found


def _slow_generators() -> dict[str, tuple[Any, Any]]:
    """Return how Python's and NumPy's generators are read and set: 15 and 50 microseconds."""
    found = {"python": (random.getstate, random.setstate)}
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        found["numpy"] = (_numpy_state, numpy.random.set_state)
    return found


def _numpy_state() -> Any:  # noqa: ANN401 - NumPy's own
    return sys.modules["numpy"].random.get_state(legacy=False)


def _plain(state: Any) -> Any:  # noqa: ANN401 - of any generator
    """Return a state so that two of them can be compared."""
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    return state.tobytes() if hasattr(state, "tobytes") else state


def _version(buffer: Any) -> int:  # noqa: ANN401 - a tensor
    """Return a number that grows with each change in place."""
    return 0 if buffer.is_inference() else int(buffer._version)  # noqa: SLF001 - no public name


def _grouped(buffers: list[Any], copies: list[Any]) -> list[tuple[list[Any], list[Any]]]:
    groups: dict[Any, tuple[list[Any], list[Any]]] = {}
    for buffer, kept in zip(buffers, copies, strict=True):
        group = groups.setdefault((buffer.device, buffer.dtype), ([], []))
        group[0].append(kept)
        group[1].append(buffer)
    return list(groups.values())
