"""A hang is named by where its threads stand, over several snapshots and several ranks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.hangs.heartbeat_pages import RaisedException
from rocsteady.hangs.values import Snapshot, Wait
from rocsteady.model import Certainty, Failure, Fingerprint
from tests.failures.seen import (
    BACKWARD,
    BARRIER,
    IDLE_WORKER,
    LOADER,
    TORCH,
    WORKER,
    beat,
    snapshot_of,
    thread,
)

AUTOGRAD = 11  # a thread of the trainer
FLASH = "at::_ops::_scaled_dot_product_flash_attention_backward::call(at::Tensor const&)"


def name(classifier: Classifier, *snapshots: Snapshot, **symptoms: object) -> Failure:
    given = {"hung": True, "snapshots": snapshots, **symptoms}
    return classifier.name(Symptoms(**given))  # type: ignore[arg-type]


def test_the_stuck_worker_is_the_place_of_a_hang_in_the_loader(classifier: Classifier) -> None:
    tree = {10: [thread(10, LOADER)], 20: [thread(20, IDLE_WORKER)], 21: [thread(21, WORKER)]}

    failure = name(classifier, snapshot_of(tree), snapshot_of(tree), step=7)

    assert failure.fingerprint == Fingerprint(
        kind="hang-in-loader", place="data.py __getitem__", step=7
    )
    assert failure.certainty is Certainty.CERTAIN
    assert "__getitem__ (project/data.py)" in failure.seen


def test_one_look_is_likely_and_several_are_certain(classifier: Classifier) -> None:
    tree = {10: [thread(10, BACKWARD)]}

    assert name(classifier, snapshot_of(tree)).certainty is Certainty.LIKELY
    assert name(classifier, snapshot_of(tree), snapshot_of(tree)).certainty is Certainty.CERTAIN


def test_only_frames_that_stay_count(classifier: Classifier) -> None:
    first = snapshot_of({10: [thread(10, LOADER)]})
    then = snapshot_of({10: [thread(10, BACKWARD)]})

    assert name(classifier, first, then).kind == "hang"
    assert name(classifier, then, then).kind == "hang-in-backward"


@pytest.mark.parametrize(
    ("native", "kind"),
    [
        ((FLASH, "torch::autograd::Engine::thread_main"), "hang-in-attention"),
        (("c10d::ProcessGroupNCCL::WorkNCCL::wait", "x"), "hang-in-collective"),
        (("miopenFindConvolutionBackwardDataAlgorithm", "x"), "hang-in-kernel-search"),
        (("rocr::core::Runtime::AsyncEventsLoop(void*)",), "hang-in-backward"),
    ],
)
def test_in_the_backward_pass_the_gradient_threads_tell_more(
    classifier: Classifier, native: tuple[str, ...], kind: str
) -> None:
    tree = {10: [thread(10, BACKWARD), thread(AUTOGRAD, (), native=native)]}

    assert name(classifier, snapshot_of(tree), snapshot_of(tree)).kind == kind


@pytest.mark.parametrize(
    ("frames", "native", "kind"),
    [
        (("train (project/train.py:57)",), ("hipStreamSynchronize",), "hang-in-sync"),
        (
            ("train (project/train.py:57)",),
            ("rocr::core::InterruptSignal::WaitRelaxed(long)", "hipStreamSynchronize"),
            "hang-lost-interrupt",
        ),
        (
            ("train (project/train.py:57)",),
            ("rocr::core::InterruptSignal::WaitRelaxed(long)", "hipMemcpyWithStream"),
            "hang-in-copy",
        ),
        (("train (project/train.py:5)",), ("hsaKmtMemoryVaMap",), "hang-in-allocator"),
        ((f"_save ({TORCH}/serialization.py:865)", "main (a.py:3)"), (), "hang-in-checkpoint"),
        (
            (
                "http_get (site-packages/huggingface_hub/file_download.py:520)",
                "main (project/train.py:3)",
            ),
            ("poll",),
            "hang-in-download",
        ),
        (
            ("wait (python3.12/threading.py:359)", f"wait ({TORCH}/_inductor/async_compile.py:51)"),
            (),
            "hang-in-compile",
        ),
        (
            ("wait (python3.12/threading.py:359)", "step (project/helpers.py:9)"),
            ("__futex_abstimed_wait_common", "PyThread_acquire_lock_timed"),
            "hang-in-script",
        ),
        (("blocks (project/helpers.py:9)",), None, "hang-in-script"),
        (("blocks (project/helpers.py:9)",), ("at::native::some_new_kernel",), "hang"),
        ((f"some_new_file ({TORCH}/nn/new.py:1)", "main (project/train.py:3)"), None, "hang"),
    ],
)
def test_the_training_thread_tells_the_kind(
    classifier: Classifier, frames: tuple[str, ...], native: tuple[str, ...] | None, kind: str
) -> None:
    tree = {10: [thread(10, frames, native=native)]}

    assert name(classifier, snapshot_of(tree), snapshot_of(tree)).kind == kind


def test_a_thread_that_only_serves_is_not_the_training(classifier: Classifier) -> None:
    """The runtime's own thread stands in the same wait in healthy runs."""
    helper = thread(12, (), native=("rocr::core::InterruptSignal::WaitRelaxed",))
    tree = {10: [thread(10, LOADER), helper], 20: [thread(20, WORKER)]}

    assert name(classifier, snapshot_of(tree), snapshot_of(tree)).kind == "hang-in-loader"


def test_the_odd_rank_is_named_and_not_those_that_wait_for_it(classifier: Classifier) -> None:
    tree = {
        10: [thread(10, BARRIER)],
        11: [thread(11, BARRIER)],
        12: [thread(12, (f"save ({TORCH}/serialization.py:628)", "keep (project/train.py:9)"))],
        13: [thread(13, BARRIER)],
    }
    beats = tuple(beat(pid, rank=pid - 10) for pid in tree)

    failure = name(classifier, snapshot_of(tree), snapshot_of(tree), heartbeats=beats)

    assert (failure.kind, failure.rank) == ("hang-in-checkpoint", 2)
    assert failure.fingerprint.place == "train.py keep"


def test_of_ranks_that_all_wait_the_odd_place_is_told(classifier: Classifier) -> None:
    elsewhere = (*BARRIER[:2], "validate (project/train.py:90)")
    tree = {pid: [thread(pid, elsewhere if pid == 12 else BARRIER)] for pid in (10, 11, 12)}
    beats = tuple(beat(pid, rank=pid - 10) for pid in tree)

    failure = name(classifier, snapshot_of(tree), snapshot_of(tree), heartbeats=beats)

    assert (failure.kind, failure.rank) == ("hang-in-collective", 2)
    assert failure.fingerprint.place == "train.py validate"


def test_the_process_that_the_verdict_blames_is_named_and_not_the_odd_one_out(
    classifier: Classifier,
) -> None:
    tree = {
        9: [thread(9, ("join (python3.12/threading.py:1119)", "<module> (project/train.py:99)"))],
        10: [thread(10, BARRIER)],
        11: [thread(11, ("acquire (python3.12/threading.py:1)", "flush (project/train.py:31)"))],
    }
    beats = (beat(10, rank=0), beat(11, rank=1))

    failure = name(classifier, snapshot_of(tree), heartbeats=beats, culprit=11)

    assert (failure.kind, failure.rank) == ("hang-in-script", 1)
    assert failure.fingerprint.place == "train.py flush"


@pytest.mark.parametrize("culprit", [None, 11, 20])
def test_of_a_notebook_the_kernel_is_named_and_not_who_waits_for_it(
    classifier: Classifier, culprit: int | None
) -> None:
    select = ("select (python3.12/selectors.py:468)", "_run_once (python3.12/asyncio/base.py:1)")
    tree = {10: [thread(10, select)], 11: [thread(11, LOADER)], 20: [thread(20, WORKER)]}

    failure = name(classifier, snapshot_of(tree), snapshot_of(tree), culprit=culprit)

    assert (failure.kind, failure.fingerprint.place) == ("hang-in-loader", "data.py __getitem__")


def test_the_launcher_is_no_rank(classifier: Classifier) -> None:
    agent = (f"_invoke_run ({TORCH}/distributed/elastic/agent/server/api.py:900)",)
    tree = {9: [thread(9, agent, wait=Wait.SLEEP)], 10: [thread(10, BACKWARD)]}

    assert name(classifier, snapshot_of(tree), snapshot_of(tree)).kind == "hang-in-backward"


@pytest.mark.parametrize(
    ("phase", "kind"),
    [
        ("data", "hang-in-loader"),
        ("backward", "hang-in-backward"),
        ("checkpoint", "hang-in-checkpoint"),
        ("compile", "hang-in-compile"),
        ("compute", "hang"),
        ("", "hang"),
    ],
)
def test_without_stacks_the_phase_is_all_there_is(
    classifier: Classifier, phase: str, kind: str
) -> None:
    failure = name(classifier, phase=phase)

    assert (failure.kind, failure.certainty) == (kind, Certainty.LIKELY)


def test_a_rank_that_raised_is_why_the_others_hang(classifier: Classifier) -> None:
    raised = RaisedException(
        type="KeyError", message="'x'", place="train.py:9 main", traceback="..."
    )
    tree = {10: [thread(10, BARRIER)]}

    failure = name(classifier, snapshot_of(tree), snapshot_of(tree), raised=(raised,))

    assert failure.kind == "script-error"
    assert failure.traceback == "..."


def test_what_breaks_when_a_hung_run_is_ended_is_not_why_it_hung(classifier: Classifier) -> None:
    raised = (
        RaisedException(type="KeyboardInterrupt"),
        RaisedException(
            type="AttributeError", message="'NoneType' object has no attribute 'close'"
        ),
    )
    tree = {10: [thread(10, BARRIER)]}

    failure = name(classifier, snapshot_of(tree), snapshot_of(tree), raised=raised, signal=9)

    assert failure.kind == "hang-in-collective"


def test_a_download_that_failed_before_is_not_why_it_hangs(classifier: Classifier) -> None:
    log = "requests.exceptions.ConnectionError: no route\n"
    tree = {10: [thread(10, BACKWARD)]}

    assert (
        name(classifier, snapshot_of(tree), snapshot_of(tree), log=log).kind == "hang-in-backward"
    )


def test_an_error_that_was_printed_long_ago_is_not_why_it_hangs(classifier: Classifier) -> None:
    log = "Traceback (most recent call last):\n  File 'a.py'\nValueError: handled\n"

    assert (
        name(classifier, snapshot_of({10: [thread(10, BACKWARD)]}), log=log).kind
        == "hang-in-backward"
    )


def test_the_kernel_goes_before_the_stack(classifier: Classifier) -> None:
    kernel = ("amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3",)
    tree = {10: [thread(10, BACKWARD)]}

    assert (
        name(classifier, snapshot_of(tree), snapshot_of(tree), kernel=kernel).kind
        == "gpu-ring-timeout"
    )


PY_SPY = """Process 4711: python train.py
Python v3.12.3 (/usr/bin/python3.12)

Thread 4711 (idle): "MainThread"
    _engine_run_backward (torch/autograd/graph.py:769)
    backward (torch/autograd/__init__.py:266)
    backward (torch/_tensor.py:626)
    train (train.py:52)
Thread 4800 (active)
    all_gather_into_tensor (torch/distributed/distributed_c10d.py:2709)
    wrapper (torch/distributed/c10d_logger.py:75)
    pre_backward (model.py:30)
Thread 4801 (idle): "pt_nccl_watchdg"
    wait (threading.py:359)
"""
GDB = """Thread 7 (Thread 0x7f01 (LWP 31) "python"):
#0  0x00007f02 in ioctl () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f03 in hsaKmtWaitOnMultipleEvents () from /opt/rocm/lib/libhsa-runtime64.so.1
#2  0x00007f04 in rocr::core::Runtime::AsyncEventsLoop(void*) () from libhsa-runtime64.so.1

Thread 1 (Thread 0x7f00 (LWP 30) "python"):
#0  0x00007f05 in rocr::core::InterruptSignal::WaitRelaxed(hsa_signal_condition_t, long) ()
   from /opt/rocm/lib/libhsa-runtime64.so.1
#1  0x00007f06 in hipStreamSynchronize () from /opt/rocm/lib/libamdhip64.so.7
"""
FAULTHANDLER = """Timeout (0:05:00)!
Thread 0x00007f0f0d7fe640 (most recent call first):
  File "/usr/lib/python3.10/threading.py", line 324 in wait
  File "/venv/lib/python3.10/site-packages/tqdm/_monitor.py", line 60 in run

Thread 0x00007f1130a3c740 (most recent call first):
  File "/usr/lib/python3.10/selectors.py", line 416 in select
  File "/v/site-packages/torch/utils/data/dataloader.py", line 1133 in _try_get_data
  File "/home/user/train.py", line 20 in <module>
"""
OURS = """process 4711 python (child of 1)
  thread 4711 python: state S, 12.00 s of cpu, waits for a lock
      [native] __futex_abstimed_wait_common
      [native] PyThread_acquire_lock_timed
      wait (threading.py:359)
      step (project/helpers.py:9)
"""
INTERRUPTED = """^CTraceback (most recent call last):
  File "/home/user/train.py", line 61, in <module>
    train()
  File "/home/user/train.py", line 40, in train
    total += loss.item()
KeyboardInterrupt
"""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (PY_SPY, "hang-in-collective"),
        (GDB, "hang-lost-interrupt"),
        (FAULTHANDLER, "hang-in-loader"),
        (OURS, "hang-in-script"),
        (INTERRUPTED, "hang-in-sync"),
    ],
)
def test_a_dump_that_somebody_printed_is_read(classifier: Classifier, text: str, kind: str) -> None:
    assert classifier.name(Symptoms(log=text, hung=True)).kind == kind


@pytest.mark.parametrize("text", [PY_SPY, GDB, FAULTHANDLER])
def test_a_dump_alone_is_the_dump_of_a_hang(classifier: Classifier, text: str) -> None:
    assert classifier.name(Symptoms(log=text)).kind.startswith("hang-")


def test_nothing_is_said_of_a_gpu_or_of_ranks_that_are_not_there(classifier: Classifier) -> None:
    alone = Symptoms(hung=True, phase="backward", gpu=False, ranks=False)

    words = classifier.name(alone).words
    both = classifier.name(replace(alone, gpu=True, ranks=True)).words

    assert (
        words == "The backward pass does not finish, and the stacks do not show in which operator."
    )
    assert both == (
        f"{words} A GPU kernel that does not finish may be the cause."
        " Another rank that this one waits for may be the cause."
    )
    unknown = classifier.name(Symptoms(hung=True, gpu=False, ranks=False)).words
    assert "GPU" not in unknown
    assert "rank" not in unknown
