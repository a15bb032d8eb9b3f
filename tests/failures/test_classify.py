"""Which of the things that were seen is the failure: roots before cascades, type before text."""

from __future__ import annotations

import pytest

from rocsteady.doctor.knowledge.failures import FailureKnowledge
from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.hangs.heartbeat_pages import RaisedException
from rocsteady.model import Certainty, Failure, Fingerprint, Role

PACKAGES = "/venv/lib/python3.12/site-packages"
TRAINING = "".join(f"epoch 1 step {step} loss 0.{step:03}\n" for step in range(60))
TRAINS = 'Traceback (most recent call last):\n  File "/home/user/train.py", line 52, in train\n'
NOTEBOOK = """---------------------------------------------------------------------------
KeyError                                  Traceback (most recent call last)
Cell In[3], line 1
----> 1 train(model)

File ~/project/train.py:12, in train(model, steps)
     10 for batch in loader:
     11     x = batch["x"]
---> 12     y = batch["label"]

KeyError: 'label'
"""
OLDER_NOTEBOOK = """---------------------------------------------------------------------------
TypeError                                 Traceback (most recent call last)
<ipython-input-3-0f1e2d3c> in <module>
----> 1 train(model)

/content/train.py in train(model, steps)
     11     x = batch["x"]
---> 12     y = batch.label()

TypeError: 'Tensor' object is not callable
"""
BOXED = (
    "╭───────────────────── Traceback (most recent call last) ──────────────────────╮\n"
    "│ /home/user/train.py:27 in main                                               │\n"
    "╰──────────────────────────────────────────────────────────────────────────────╯\n"
    "TypeError: forward() got an unexpected keyword argument 'labels'\n"
)
OOM = (
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate {asked}. GPU 0 has a total"
    " capacity of 20.00 GiB of which {free} is free. Of the allocated memory 12.00 GiB is"
    " allocated by PyTorch, and {held} is reserved by PyTorch but unallocated."
)
RANK_0_OF_2 = "[rank0]: RuntimeError: [/x/gloo/transport/tcp/pair.cc:534] Connection closed by peer"


def in_log(classifier: Classifier, log: str, exit_code: int | None = 1) -> Failure:
    return classifier.name(Symptoms(log=log, exit_code=exit_code))


# ---- The script's own mistakes ----


def test_a_bug_of_the_script_has_its_traceback_and_place(classifier: Classifier) -> None:
    trace = f"{TRAINS}    x = labels[name]\nKeyError: 'img_0042'"

    failure = classifier.name(Symptoms(log=f"{TRAINING}{trace}\n", exit_code=1, step=59))

    assert failure == Failure(
        kind="script-error",
        title="The script itself failed",
        words=failure.words,
        certainty=Certainty.CERTAIN,
        fingerprint=Fingerprint(kind="script-error", place="train.py train", step=59),
        seen=("KeyError: 'img_0042'",),
        line="train.py:52 in train",
        traceback=trace,
        sources=failure.sources,
    )


def test_a_device_that_torch_lacks_is_named_with_the_scripts_line(classifier: Classifier) -> None:
    log = """Traceback (most recent call last):
  File "/home/u/train.py", line 4, in <module>
    main()
  File "/home/u/train.py", line 3, in main
    m = m.cuda()
  File "/opt/venv/lib/python3.12/site-packages/torch/cuda/__init__.py", line 403, in _lazy_init
    raise AssertionError("Torch not compiled with CUDA enabled")
AssertionError: Torch not compiled with CUDA enabled
"""

    failure = classifier.name(Symptoms(log=log, exit_code=1))

    assert (failure.kind, failure.line) == ("torch-without-gpu-support", "train.py:3 in main")


def test_the_users_own_frame_is_the_place_and_not_the_librarys(classifier: Classifier) -> None:
    log = (
        'Traceback (most recent call last):\n  File "/home/user/net.py", line 9, in forward\n'
        "    return self.head(x)\n"
        f'  File "{PACKAGES}/torch/nn/modules/linear.py", line 134, in forward\n'
        "    return F.linear(input, self.weight, self.bias)\n"
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x10 and 12x4)\n"
    )

    assert in_log(classifier, log).fingerprint.place == "net.py forward"


@pytest.mark.parametrize(
    "log",
    [
        "train.py: error: the following arguments are required: --data\n",
        '  File "/home/user/a.py", line 3\n    f(\n     ^\nSyntaxError: was never closed\n',
        "/usr/bin/python3: can't open file '/home/user/tran.py': [Errno 2] No such file\n",
        f"{TRAINS}    import flash_atn\nModuleNotFoundError: No module named 'flash_atn'\n",
        f"{TRAINS}    load()\nRuntimeError: Error(s) in loading state_dict for Net:\n",
        f"{TRAINS}    open(path)\nFileNotFoundError: [Errno 2] No such file: 'a.csv'\n",
        BOXED,
        NOTEBOOK,
        OLDER_NOTEBOOK,
    ],
)
def test_other_bugs_of_the_script(classifier: Classifier, log: str) -> None:
    assert in_log(classifier, log).kind == "script-error"


@pytest.mark.parametrize("log", [BOXED, NOTEBOOK, OLDER_NOTEBOOK])
def test_boxes_and_notebooks_tell_the_place_too(classifier: Classifier, log: str) -> None:
    place = in_log(classifier, log).fingerprint.place

    assert place in ("train.py main", "train.py train")


def test_a_workers_exception_is_the_script_s(classifier: Classifier) -> None:
    log = (
        f"{TRAINS}    for batch in loader:\n"
        f'  File "{PACKAGES}/torch/_utils.py", line 733, in reraise\n'
        "    raise exception\nValueError: Caught ValueError in DataLoader worker process 2.\n"
        "Original Traceback (most recent call last):\n"
        f'  File "{PACKAGES}/torch/utils/data/_utils/worker.py", line 349, in _worker_loop\n'
        '    data = fetcher.fetch(index)\n  File "/home/user/data.py", line 33, in __getitem__\n'
        "    raise ValueError('no faces')\nValueError: no faces\n"
    )

    failure = in_log(classifier, log)

    assert failure.kind == "script-error"
    assert failure.fingerprint.place == "data.py __getitem__"
    assert failure.seen == ("ValueError: no faces",)


def test_spawn_wraps_the_error_of_its_process(classifier: Classifier) -> None:
    log = (
        f"{TRAINS}    mp.spawn(worker, nprocs=2)\n"
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
        "-- Process 1 terminated with the following error:\n"
        'Traceback (most recent call last):\n  File "/home/user/main.py", line 44, in worker\n'
        "    x = y + z\nNameError: name 'z' is not defined\n"
    )

    failure = in_log(classifier, log)

    assert (failure.kind, failure.fingerprint.place) == ("script-error", "main.py worker")


def test_a_launcher_alone_says_nothing(classifier: Classifier) -> None:
    log = (
        "Traceback (most recent call last):\n"
        f'  File "{PACKAGES}/torch/distributed/run.py", line 9, in run\n    elastic_launch(\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )

    assert in_log(classifier, log).kind == "unknown"


LAUNCHED = (
    "Traceback (most recent call last):\n"
    '  File "/venv/bin/accelerate", line 10, in <module>\n    sys.exit(main())\n'
    f'  File "{PACKAGES}/accelerate/commands/launch.py", line 778, in simple_launcher\n'
    "    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)\n"
    "subprocess.CalledProcessError: Command '['/venv/bin/python', 'train.py']'"
)
TELEMETRY = (
    "Traceback (most recent call last):\n"
    f'  File "{PACKAGES}/posthog/request.py", line 93, in post\n    res = session.post(url)\n'
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='example.org', port=443):"
    " Max retries exceeded with url: /batch/\n"
)
ORPHAN = (
    "Traceback (most recent call last):\n"
    f'  File "{PACKAGES}/torch/utils/data/_utils/worker.py", line 299, in _worker_loop\n'
    "    r = index_queue.get(timeout=MP_STATUS_CHECK_INTERVAL)\n"
    "RuntimeError: DataLoader worker (pid 42) exited unexpectedly with exit code 1.\n"
)


def test_a_launcher_tells_that_its_process_was_killed(classifier: Classifier) -> None:
    assert in_log(classifier, f"{LAUNCHED} died with <Signals.SIGKILL: 9>.").kind == "killed"


@pytest.mark.parametrize("noise", [TELEMETRY, ORPHAN])
def test_what_a_killed_process_has_printed_did_not_end_it(
    classifier: Classifier, noise: str
) -> None:
    by_launcher = f"{noise}{LAUNCHED} died with <Signals.SIGKILL: 9>."

    assert in_log(classifier, by_launcher).kind == "killed"
    assert classifier.name(Symptoms(log=noise, signal=9)).kind == "killed"


def test_a_worker_that_lost_its_parent_does_not_tell_why_that_was_killed(
    classifier: Classifier,
) -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.12/multiprocessing/connection.py", line 399, in _recv\n'
        "    chunk = read(handle, remaining)\n"
        "ConnectionResetError: [Errno 104] Connection reset by peer"
    )
    worker = RaisedException(
        type="ConnectionResetError",
        bases=("ConnectionError", "OSError", "Exception"),
        message="[Errno 104] Connection reset by peer",
        traceback=trace,
    )

    assert classifier.name(Symptoms(log=trace, signal=9, raised=(worker,))).kind == "killed"


def test_a_module_that_is_missing_is_no_library_that_does_not_fit(classifier: Classifier) -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/venv/bin/llamafactory-cli", line 10, in <module>\n    sys.exit(main())\n'
        f'  File "{PACKAGES}/llamafactory/data/mm_plugin.py", line 28, in <module>\n'
        "    import torchaudio\nModuleNotFoundError: No module named 'torchaudio'"
    )
    raised = RaisedException(
        type="ModuleNotFoundError",
        bases=("ImportError", "Exception"),
        message="No module named 'torchaudio'",
        traceback=trace,
    )

    assert in_log(classifier, trace).kind == "script-error"
    assert classifier.name(Symptoms(log="", exit_code=1, raised=(raised,))).kind == "script-error"


# ---- Chains ----


def test_the_first_named_exception_of_a_chain_names_it(classifier: Classifier) -> None:
    log = (
        f"{TRAINS}    sock.connect()\n"
        "socket.gaierror: [Errno -3] Temporary failure in name resolution\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        f"{TRAINS}    model = load()\nOSError: cannot load the tokenizer\n"
    )

    failure = in_log(classifier, log)

    assert (failure.kind, failure.fingerprint.place) == ("network-error", "train.py train")


def test_what_breaks_while_a_script_is_interrupted_is_not_its_mistake(
    classifier: Classifier,
) -> None:
    interrupted = f"{TRAINS}    step()\nKeyboardInterrupt\n"
    broke = f"{TRAINS}    writer.close()\nAttributeError: 'NoneType' object has no attribute 'f'\n"
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n"

    assert in_log(classifier, f"{interrupted}{chained}{broke}").kind == "interrupted"
    assert in_log(classifier, f"{interrupted}Error in atexit:\n{broke}").kind == "interrupted"
    assert in_log(classifier, f"{broke}waits\n{interrupted}").kind == "script-error"


def test_what_python_itself_ignores_is_ignored(classifier: Classifier) -> None:
    log = (
        f"{TRAINING}done\nException ignored in: <function Loader.__del__ at 0x7f>\n"
        f"{TRAINS}    self.close()\nAttributeError: 'Loader' object has no attribute 'pool'\n"
    )

    assert in_log(classifier, log, exit_code=0).kind == "unknown"


# ---- Roots and cascades ----


def test_ranks_that_lost_a_peer_do_not_name_the_failure(classifier: Classifier) -> None:
    oom = OOM.format(asked="1.00 GiB", free="100.00 MiB", held="50.00 MiB")
    log = (
        f"{RANK_0_OF_2}\n[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/home/user/ddp.py", line 88, in step\n[rank1]:     loss.backward()\n'
        f"[rank1]: {oom}\n"
        "failed (exitcode: 1) local_rank: 0 (pid: 12) of binary: /venv/bin/python\n"
    )

    failure = in_log(classifier, log)

    assert (failure.kind, failure.rank) == ("oom-device", 1)
    assert failure.also == (("peer-died", Role.CASCADE),)


def test_a_lost_peer_names_it_if_there_is_nothing_else(classifier: Classifier) -> None:
    failure = in_log(classifier, f"{TRAINING}{RANK_0_OF_2} [127.0.0.1]:10895\n")

    assert (failure.kind, failure.rank) == ("peer-died", 0)


def test_the_rank_that_torchrun_saw_first_goes_before_the_loudest(classifier: Classifier) -> None:
    ranks = "".join(
        f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "/home/user/a.py",'
        f" line {rank}, in f{rank}\n[rank{rank}]: ValueError: rank {rank}\n"
        for rank in range(4)
    )
    log = f"{ranks}Root Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n"

    failure = in_log(classifier, log)

    assert (failure.rank, failure.fingerprint.place) == (2, "a.py f2")


def test_tracebacks_of_two_ranks_are_told_apart_line_by_line(classifier: Classifier) -> None:
    pairs = [
        "Traceback (most recent call last):",
        '  File "/home/user/a.py", line 3, in f{rank}',
        "    g()",
        "ValueError: of rank {rank}",
    ]
    log = "".join(f"[rank{r}]: {line.format(rank=r)}\n" for line in pairs for r in (1, 0))

    failure = in_log(classifier, log)

    assert (failure.rank, failure.fingerprint.place) == (1, "a.py f1")


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (
            ("Memory access fault by GPU node-1 (Agent handle: 0x5)", "Aborted"),
            "memory-access-fault",
        ),
        (("Watchdog caught collective operation timeout: x", "Aborted"), "collective-timeout"),
        (("ncclRemoteError: gone", "failed (exitcode: -11) local_rank: 1"), "segfault"),
        (("Watchdog caught collective operation timeout", "exitcode: -9"), "killed"),
        (
            ("k.cu:9: f: block: [0,0,0] Assertion `i < n` failed.", "unspecified launch failure"),
            "device-assert",
        ),
        (
            ("shm.h:28 NCCL WARN Call to posix_fallocate failed", "ncclSystemError: x"),
            "shm-too-small",
        ),
        (
            (
                "rocBLAS error: Tensile solution found, but exception thrown for { }",
                "CUBLAS_STATUS_INTERNAL_ERROR",
            ),
            "blas-error",
        ),
        (("Segmentation fault (core dumped)",), "segfault"),
        (("Fatal Python error: Aborted",), "abort"),
        (("Killed",), "killed"),
    ],
)
def test_what_follows_never_names_it(
    classifier: Classifier, lines: tuple[str, ...], kind: str
) -> None:
    for ordered in (lines, lines[::-1]):
        assert in_log(classifier, "\n".join(ordered)).kind == kind


def test_an_error_after_which_training_went_on_was_not_the_end(classifier: Classifier) -> None:
    handled = (
        f"{TRAINS}    step()\n{OOM.format(asked='1.00 GiB', free='0 bytes', held='0 bytes')}\n"
    )
    end = f"{TRAINS}    x = labels[name]\nKeyError: 'a'\n"

    assert in_log(classifier, f"{handled}{TRAINING}{end}").kind == "script-error"
    assert in_log(classifier, f"{handled}{TRAINING}", exit_code=None).kind == "unknown"
    assert in_log(classifier, f"{TRAINING}{handled}").kind == "oom-device"


# ---- Memory ----


@pytest.mark.parametrize(
    ("asked", "free", "held", "kind"),
    [
        ("124.00 MiB", "554.00 MiB", "165.00 MiB", "oom-device"),
        ("2.00 GiB", "500.00 MiB", "7.10 GiB", "oom-fragmentation"),
        ("20.00 MiB", "10.00 MiB", "1.00 GiB", "oom-device"),  # a twentieth of the card is nothing
        ("8.00 GiB", "500.00 MiB", "7.10 GiB", "oom-device"),  # whole it would not be enough either
        ("7.50 GiB", "500.00 MiB", "7.10 GiB", "oom-fragmentation"),  # and here it would
        ("1.00 GiB", "15.00 GiB", "0 bytes", "oom-while-free"),
        ("30.00 GiB", "19.00 GiB", "0 bytes", "oom-device"),
    ],
)
def test_the_numbers_tell_what_out_of_memory_means(
    classifier: Classifier, asked: str, free: str, held: str, kind: str
) -> None:
    message = OOM.format(asked=asked, free=free, held=held)

    assert in_log(classifier, f"{TRAINS}    step()\n{message}\n").kind == kind


def test_the_older_wording_has_the_same_numbers(classifier: Classifier) -> None:
    line = (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 20.00 GiB total"
        " capacity; 9.00 GiB already allocated; 1.00 GiB free; 18.00 GiB reserved in total by"
        " PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb"
    )

    assert in_log(classifier, line).kind == "oom-fragmentation"
    assert in_log(classifier, line.replace("18.00", "9.50")).kind == "oom-device"


@pytest.mark.parametrize(
    ("symptoms", "kind"),
    [
        (Symptoms(signal=9), "killed"),
        (Symptoms(exit_code=137), "killed"),
        (Symptoms(exit_code=-9, oom_kills=1), "oom-host"),
        (Symptoms(exit_code=1, oom_kills=1, log="ncclRemoteError: gone"), "oom-host"),
        (
            Symptoms(exit_code=-9, kernel=("Out of memory: Killed process 12 (python) total",)),
            "oom-host",
        ),
        (
            Symptoms(
                exit_code=1,
                kernel=("Out of memory: Killed process 12 (browser) total-vm:1kB",),
                log=f"{TRAINS}    x\nKeyError: 'a'\n",
            ),
            "script-error",
        ),
        (Symptoms(hung=True, oom_kills=1), "oom-host"),
    ],
)
def test_who_killed_it(classifier: Classifier, symptoms: Symptoms, kind: str) -> None:
    assert classifier.name(symptoms).kind == kind


# ---- How it ended ----


@pytest.mark.parametrize(
    ("symptoms", "kind"),
    [
        (Symptoms(signal=11), "segfault"),
        (Symptoms(exit_code=139), "segfault"),
        (Symptoms(exit_code=-11), "segfault"),
        (Symptoms(exit_code=3221225477), "segfault"),  # 0xC0000005, as Windows has it
        (Symptoms(exit_code=-1073741819), "segfault"),
        (Symptoms(signal=6), "abort"),
        (Symptoms(signal=15), "interrupted"),
        (Symptoms(exit_code=130), "interrupted"),
        (Symptoms(signal=7), "bus-error"),
        (Symptoms(signal=4), "broken-install"),
        (Symptoms(exit_code=1), "unknown"),
        (Symptoms(exit_code=0), "unknown"),
        (Symptoms(signal=99), "unknown"),
        (Symptoms(), "unknown"),
        (Symptoms(machine_went_down=True), "machine-went-down"),
        (
            Symptoms(
                machine_went_down=True,
                kernel=("amdgpu: ERROR: GPU over temperature range(SW CTF) detected!",),
            ),
            "gpu-overheated",
        ),
        (
            Symptoms(machine_went_down=True, log=f"{TRAINS}    x\nKeyError: 'a'\n"),
            "machine-went-down",
        ),
    ],
)
def test_the_end_names_what_nothing_else_does(
    classifier: Classifier, symptoms: Symptoms, kind: str
) -> None:
    assert classifier.name(symptoms).kind == kind


SEGFAULT = "python[4711]: segfault at 0 ip 00007f1 sp 00007ff error 4 in libtorch_cpu.so[7f1+1000]"


def test_a_process_that_was_killed_did_not_crash(classifier: Classifier) -> None:
    """The kernel's log is that of all processes, of other people's too."""
    assert classifier.name(Symptoms(signal=11, kernel=(SEGFAULT,))).kind == "segfault"
    assert classifier.name(Symptoms(signal=9, kernel=(SEGFAULT,))).kind == "killed"


def test_the_unknown_keeps_its_evidence(classifier: Classifier) -> None:
    failure = in_log(classifier, "one\ntwo\nsomething new went wrong\n", exit_code=3)

    assert (failure.kind, failure.certainty) == ("unknown", Certainty.UNKNOWN)
    assert failure.seen == ("one", "two", "something new went wrong", "Exit code 3")
    assert failure.title == "Exit code 3, no error message"


def test_a_warning_is_not_what_the_script_ended_of(classifier: Classifier) -> None:
    log = "[W1119 21:15:55.88 ProcessGroupGloo.cpp:524] Warning: Unable to resolve hostname\n"

    assert in_log(classifier, log, exit_code=3).title == "Exit code 3, no error message"


def test_an_error_of_the_device_without_a_name_is_not_the_scripts(classifier: Classifier) -> None:
    log = f"{TRAINS}    y = x @ x\nRuntimeError: HIP error: something that is new in ROCm 12\n"

    assert in_log(classifier, log).kind == "unknown"


def test_a_crash_is_placed_where_python_was(classifier: Classifier) -> None:
    log = (
        "Fatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007ff962067300 (most recent call first):\n"
        f'  File "{PACKAGES}/torch/nn/modules/linear.py", line 134 in forward\n'
        '  File "/home/user/train.py", line 88 in epoch\n\n'
        "Thread 0x00007ff86962a6c0 (most recent call first):\n"
        '  File "/home/user/other.py", line 3 in serve\n'
    )

    assert in_log(classifier, log, -11).fingerprint.place == "train.py epoch"


# ---- The kernel ----


@pytest.mark.parametrize(
    ("kernel", "log", "kind"),
    [
        (
            ("amdgpu: ring gfx timeout, signaled seq=1, emitted seq=2", "amdgpu: GPU reset begin!"),
            "HW Exception by GPU node-1 (Agent handle: 0x5) reason :GPU Hang",
            "gpu-ring-timeout",
        ),
        (
            (
                "amdgpu: ring gfx timeout, signaled seq=1, emitted seq=2",
                "amdgpu: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
            ),
            "",
            "gpu-hardware-error",
        ),
        (
            ("amdgpu: [gfxhub] page fault (src_id:0 ring:24)", "amdgpu: GPU reset begin!"),
            "RuntimeError: HIP error: unspecified launch failure",
            "memory-access-fault",
        ),
        (("amdgpu: GPU reset begin!",), f"{TRAINS}    x\nKeyError: 'a'", "script-error"),
        (("amdgpu: GPU reset begin!",), "", "gpu-reset"),
        (
            ("pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0",) * 9,
            "",
            "unknown",
        ),
        (("usb 1-1: new high-speed USB device",), "", "unknown"),
    ],
)
def test_the_kernel_explains_the_device_and_not_the_script(
    classifier: Classifier, kernel: tuple[str, ...], log: str, kind: str
) -> None:
    assert classifier.name(Symptoms(kernel=kernel, log=log, exit_code=1)).kind == kind


def test_a_kernel_log_that_was_pasted_is_one_too(classifier: Classifier) -> None:
    text = (
        "RuntimeError: HIP error: unspecified launch failure\n\ndmesg:\n"
        "[ 812.1] amdgpu 0000:03:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE\n"
    )

    assert in_log(classifier, text).kind == "gpu-mes-failure"


# ---- Told by the processes themselves ----


def test_the_type_goes_before_the_text(classifier: Classifier) -> None:
    """The message says memory, and the exception is the script's own."""
    raised = RaisedException(
        type="builtins.KeyError",
        bases=("builtins.LookupError",),
        message="'HIP out of memory. Tried to allocate'",
        place="data.py:33 load",
        traceback="Traceback ...",
    )
    failure = classifier.name(Symptoms(raised=(raised,), exit_code=1, step=3))

    assert failure.kind == "script-error"
    assert failure.fingerprint == Fingerprint(kind="script-error", place="data.py load", step=3)
    assert failure.traceback == "Traceback ..."


def test_a_subclass_is_known_by_its_base(classifier: Classifier) -> None:
    raised = RaisedException(
        type="mylib.Full", bases=("torch.OutOfMemoryError",), message="no room"
    )

    assert classifier.name(Symptoms(raised=(raised,))).kind == "oom-device"


def test_what_ended_a_process_goes_before_what_it_printed(classifier: Classifier) -> None:
    printed = (
        f"{TRAINS}    step()\n{OOM.format(asked='1.00 GiB', free='0 bytes', held='0 bytes')}\n"
    )
    raised = RaisedException(type="KeyError", message="'a'", place="train.py:9 main")

    failure = classifier.name(Symptoms(log=printed, raised=(raised,), exit_code=1))

    assert failure.kind == "script-error"
    assert ("oom-device", Role.CASCADE) in failure.also


def test_of_several_processes_the_first_root_in_time(classifier: Classifier) -> None:
    raised = (
        RaisedException(
            type="torch.distributed.DistBackendError", message="NCCL communicator was aborted"
        ),
        RaisedException(
            type="torch.OutOfMemoryError", message="HIP out of memory.", place="a.py:1 f"
        ),
        RaisedException(type="KeyError", message="'later'"),
    )

    assert classifier.name(Symptoms(raised=raised, exit_code=1)).kind == "oom-device"


def test_a_failed_write_is_a_full_disk_only_if_the_disk_is_full(classifier: Classifier) -> None:
    line = "RuntimeError: [enforce fail at x.cc:445] . PytorchStreamWriter failed writing file d/1"

    assert classifier.name(Symptoms(log=line, exit_code=1)).kind == "disk-full"
    assert classifier.name(Symptoms(log=line, disk_free=0)).kind == "disk-full"
    assert classifier.name(Symptoms(log=line, disk_free=1 << 40)).kind == "storage-unavailable"


# ---- Numbers ----


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("step 1 loss 0.3\nstep 2 loss nan\n", "nan-loss"),
        ("{'loss': 1.2}\n{'loss': nan, 'grad_norm': nan}\n", "nan-loss"),
        ("Epoch 3 train_loss=inf", "nan-loss"),
        ("Train Loss: nan | acc 0.1", "nan-loss"),
        ("Loss is nan, stopping training", "nan-loss"),
        ("step 1 loss nan\nstep 2 loss 0.3\n", "unknown"),
        ("{'loss': 1.2, 'grad_norm': nan}\n{'loss': 0.9, 'grad_norm': 1.0}\n", "unknown"),
        ("val_loss improved from inf to 0.53\n", "unknown"),
        ("best_loss: inf, patience 5\n", "unknown"),
        ("{'eval_loss': nan, 'eval_accuracy': 0.4}\n", "unknown"),
        ("Gradient overflow. Skipping step, reducing loss scale to 32768.0\n", "unknown"),
        ("median nan mean 0.2 info loss\n", "unknown"),
    ],
)
def test_a_loss_is_no_number_only_if_it_stays_so(
    classifier: Classifier, log: str, kind: str
) -> None:
    assert in_log(classifier, log, exit_code=None).kind == kind


# ---- Nothing that fails ----


@pytest.mark.parametrize(
    "log",
    [
        TRAINING,
        "",
        "\n" * 100,
        "Killed 3 stale workers before the start\n",
        "Tip: if you see 'CUDA out of memory', lower --batch_size\n",
        "config: {'on_oom': 'retry', 'error': None, 'nan_check': True, 'kill_after': 10}\n",
        "UserWarning: Attempting to use hipBLASLt on an unsupported architecture! Overriding it\n",
        "MIOpen(HIP): Warning [SQLiteBase] Missing system database file: gfx1030_36.kdb\n",
        "[W Config.h:28] Warning: expandable_segments not supported on this platform\n",
        "UserWarning: Can't initialize amdsmi - Error code: 34\n",
        "amdgpu.ids: No such file or directory\n",
        "Retrying (Retry(total=4, connect=4)) after connection broken by 'ReadTimeoutError'\n",
        'NCCL WARN Missing "iommu=pt" from kernel command line which can lead to hang!\n',
        "wandb: ERROR Error while calling W&B API: rate limit (<Response [429]>)\n",
        "0 errors, 12 warnings; aborted: no; SIGTERM handler installed\n",
        "UserWarning: Memory Efficient attention has been runtime disabled.\n",
        "Number of segmentation faults found in the images: 0\n",
        "EarlyStopping: Trainer was signaled to stop but the required `min_epochs=2` is not met.\n",
    ],
)
def test_healthy_output_names_nothing(classifier: Classifier, log: str) -> None:
    for code in (None, 0):
        failure = classifier.name(Symptoms(log=log, exit_code=code))
        assert (failure.kind, failure.certainty) == ("unknown", Certainty.UNKNOWN)


def test_a_sign_that_is_not_enough_alone_is_with_a_failure(
    classifier: Classifier, failure_knowledge: FailureKnowledge
) -> None:
    line = next(it.sample for it in failure_knowledge.signatures if it.id == "bitsandbytes-missing")

    assert classifier.name(Symptoms(log=line)).kind == "unknown"
    assert classifier.name(Symptoms(log=line, exit_code=0)).kind == "unknown"
    assert classifier.name(Symptoms(log=line, exit_code=1)).kind == "bitsandbytes-no-library"


RECOVERED = (
    "UserWarning: bgemm_internal_cublaslt error: HIPBLAS_STATUS_NOT_SUPPORTED when calling"
    " hipblasLtMatmul. Will attempt to recover by calling cublas instead."
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (RECOVERED, "unknown"),
        (f"{RECOVERED}\nRuntimeError: CUDA error: invalid argument\n", "hip-invalid-value"),
        ("RuntimeError: cuFFT error: HIPFFT_PARSE_ERROR", "fft-failure"),
        ("NCCL WARN [FATAL ERROR]: HIP failure: 'invalid device pointer'", "collective-error"),
        ("No available kernel. Aborting execution.", "no-attention-kernel"),
        (
            "ValueError: Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)",
            "triton-cannot-reach-memory",
        ),
        (
            "ImportError: cannot import name 'triton_key' from 'triton.compiler.compiler'",
            "compile-failure",
        ),
    ],
)
def test_what_was_once_named_wrongly(classifier: Classifier, text: str, kind: str) -> None:
    assert classifier.name(Symptoms(log=text)).kind == kind


OWN = "Including non-PyTorch memory, this process has 8.10 GiB memory in use. "


@pytest.mark.parametrize(
    ("others", "kind"),
    [
        (f"Process 4410 has 9.90 GiB memory in use. {OWN}", "gpu-taken"),
        (f"Process 4410 has 1.10 GiB memory in use. {OWN}", "oom-device"),
        ("Process 4410 has 19.10 GiB memory in use. ", "oom-device"),  # itself, in a container
    ],
)
def test_memory_that_the_text_says_others_hold(
    classifier: Classifier, others: str, kind: str
) -> None:
    oom = OOM.format(asked="1.00 GiB", free="100.00 MiB", held="50.00 MiB")
    text = oom.replace("Of the allocated", f"{others}Of the allocated")
    log = f'Traceback (most recent call last):\n  File "train.py", line 8, in step\n{text}\n'

    assert in_log(classifier, log).kind == kind


RAY_ASKS = f"""(TrainController pid=7) Failed to send resource request for train-b5ce8.
(TrainController pid=7) Traceback (most recent call last):
(TrainController pid=7)   File "{PACKAGES}/ray/train/v2/_internal/execution/scaling_policy/\
autoscaling_coordinator_client.py", line 58, in send_resource_request
(TrainController pid=7)     ray.get(
(TrainController pid=7)   File "python/ray/includes/common.pxi", line 107, in check_status
(TrainController pid=7) ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.
"""
RAY_FAILED = """Traceback (most recent call last):
  File "/home/user/train.py", line 58, in <module>
    result = trainer.fit()
ray.train.v2.api.exceptions.WorkerGroupError: Training failed due to worker errors:
[Rank 0 Error Snippet]:
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit \
detail: Worker unexpectedly exits with a connection error code 2. End of file.
"""


@pytest.mark.parametrize("log", [RAY_FAILED, f"{RAY_ASKS}{RAY_FAILED}"])
def test_what_ray_asks_again_is_not_the_failure(classifier: Classifier, log: str) -> None:
    """Seen with Ray 2.60.0 on a busy machine, after one of its workers was killed."""
    assert in_log(classifier, log).kind == "killed"


def test_ray_wraps_an_error_of_the_script(classifier: Classifier) -> None:
    log = RAY_FAILED.partition("The actor")[0] + f"{TRAINS}    x\nKeyError: 'x'\n"

    assert in_log(classifier, log).kind == "script-error"


@pytest.mark.parametrize(
    ("library", "kind"),
    [
        ("triton/compiler/compiler.py", "unknown"),
        ("torch/_inductor/codegen/common.py", "unknown"),
        ("amdsmi/amdsmi_interface.py", "broken-install"),
        ("torch/nn/modules/module.py", "script-error"),  # called with what it does not take
        ("pandas/core/frame.py", "script-error"),
    ],
)
def test_a_mistake_inside_a_tool_is_not_the_scripts(
    classifier: Classifier, library: str, kind: str
) -> None:
    inside = f'  File "{PACKAGES}/{library}", line 8, in look\n    return known[name]\n'
    log = f"{TRAINS}    step(batch)\n{inside}KeyError: 'name'\n"

    assert in_log(classifier, log).kind == kind
