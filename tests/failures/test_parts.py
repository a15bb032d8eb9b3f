"""A batch that could not be trained in parts is named by what it was for."""

from __future__ import annotations

import traceback

import pytest

from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.hangs.heartbeat_pages import RaisedException

RANKS = "out of memory with 8 samples at a time on one of several ranks; all of them need smaller"
DEVICE = (
    "HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 20.00 GiB of"
    " which 1.00 GiB is free. Of the allocated memory 18.00 GiB is allocated by PyTorch, and"
    " 100.00 MiB is reserved by PyTorch but unallocated."
)
HOST = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"
    " tried to allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)"
)
CANNOT = "a batch cannot be split by its first axis: its tensors have the sizes [4, 8]"


class MicroBatchError(Exception):
    pass


def raised(text: str, cause: Exception | None) -> MicroBatchError:
    try:
        try:
            if cause is not None:
                raise cause  # noqa: TRY301 - a traceback as it really is
        except Exception as error:
            raise MicroBatchError(text) from error
        raise MicroBatchError(text)  # noqa: TRY301
    except MicroBatchError as error:
        return error


def told(error: MicroBatchError) -> tuple[RaisedException, str]:
    text = "".join(traceback.format_exception(error))
    kind = type(error)
    told = RaisedException(
        type=f"rocsteady_train.loop.micro_batches.{kind.__qualname__}",
        bases=("Exception",),
        message=str(error),
        place="train.py:12 <module>",
        traceback=text,
    )
    return told, text


@pytest.mark.parametrize(
    ("text", "cause", "kind"),
    [
        (RANKS, RuntimeError(DEVICE), "oom-device"),
        (RANKS, RuntimeError(HOST), "oom-host"),
        (RANKS, MemoryError(), "oom-host"),
        (CANNOT, None, "script-error"),
    ],
    ids=["device", "host", "python", "cannot be split"],
)
@pytest.mark.parametrize("by", ["the process", "the log"])
def test_it_is_called_by_its_cause(
    classifier: Classifier, text: str, cause: Exception | None, kind: str, by: str
) -> None:
    process, log = told(raised(text, cause))
    symptoms = (
        Symptoms(raised=(process,), exit_code=1)
        if by == "the process"
        else Symptoms(log=log, exit_code=1)
    )

    assert classifier.name(symptoms).kind == kind
