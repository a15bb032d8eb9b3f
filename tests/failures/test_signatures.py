"""Every signature is fired by a text, and every kind is reached by something."""

from __future__ import annotations

import pytest

from rocsteady.doctor.knowledge.failures import FailureKnowledge, Signature, Where, load_failures
from rocsteady.failures.classify import Classifier
from rocsteady.failures.own_words import guesses
from rocsteady.failures.symptoms import Symptoms
from rocsteady.model import FailureKind, Role

KNOWN = load_failures()
# What code tells and not a signature: numbers in a message, facts that are handed in, the rest.
BY_CODE = {
    "oom-fragmentation": Symptoms(
        log="RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
        " capacity of 20.00 GiB of which 1.00 GiB is free. 7.00 GiB is reserved by"
        " PyTorch but unallocated."
    ),
    "oom-while-free": Symptoms(
        log="RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
        " capacity of 20.00 GiB of which 18.00 GiB is free."
    ),
    "hang": Symptoms(hung=True),
    "hang-in-script": Symptoms(
        hung=True,
        log='Traceback (most recent call last):\n  File "/home/user/a.py", line 3, in wait\n'
        "    lock.acquire()\nKeyboardInterrupt\n",
    ),
    "gpu-taken": Symptoms(
        log="RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
        " capacity of 20.00 GiB of which 1.00 GiB is free.",
        gpu_taken=12 << 30,
    ),
    "script-exit": Symptoms(log="no improvement for 5 epochs\n", exit_code=3, exits=True),
    "machine-went-down": Symptoms(machine_went_down=True),
    "unknown": Symptoms(),
}


def fires(signature: Signature) -> Symptoms:
    """Put a signature's own sample where it would be seen."""
    if signature.where is Where.EXIT:
        return Symptoms(signal=signature.signals[0])
    if signature.where is Where.KERNEL:
        code = None if signature.alone else 1
        return Symptoms(kernel=tuple(signature.sample.splitlines()), exit_code=code)
    return Symptoms(
        log=signature.sample,
        hung=signature.where is Where.STACK or signature.failure.startswith("hang"),
        exit_code=None if signature.alone else 1,
    )


@pytest.mark.parametrize("signature", KNOWN.signatures, ids=lambda it: it.id)
def test_its_own_sample_fires_it(classifier: Classifier, signature: Signature) -> None:
    failure = classifier.name(fires(signature))

    if signature.failure == FailureKind.UNKNOWN:
        assert failure.kind == FailureKind.UNKNOWN
    elif signature.role is Role.CONFIRMATION and signature.where is Where.KERNEL:
        assert signature.failure in (failure.kind, *(kind for kind, _ in failure.also))
    else:
        assert (failure.kind, failure.signature) == (signature.failure, signature.id)


@pytest.mark.parametrize(
    "signature",
    [it for it in KNOWN.signatures if it.where is Where.EXIT and it.signals and it.codes],
    ids=lambda it: it.id,
)
def test_windows_codes_mean_the_same(classifier: Classifier, signature: Signature) -> None:
    for code in signature.codes:
        assert classifier.name(Symptoms(exit_code=code)).kind == signature.failure
        assert classifier.name(Symptoms(exit_code=code - 2**32)).kind == signature.failure


@pytest.mark.parametrize("kind", KNOWN.kinds)
def test_every_kind_is_reached(classifier: Classifier, kind: str) -> None:
    by_signature = [
        fires(it)
        for it in KNOWN.signatures
        if it.failure == kind and it.role is not Role.CONFIRMATION
    ]
    ways = [BY_CODE[kind]] if kind in BY_CODE else by_signature

    if not ways:  # no program says it: people do
        assert kind in [guess.id for guess in guesses(KNOWN.kinds[kind].said[0])]
        return
    assert classifier.name(ways[0]).kind == kind


def test_what_is_known_is_known_once(failure_knowledge: FailureKnowledge) -> None:
    patterns = [it.pattern for it in failure_knowledge.signatures if it.pattern]

    assert len(patterns) == len(set(patterns))
