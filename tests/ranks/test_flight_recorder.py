"""Dumps of PyTorch's flight recorder: real ones, several ranks, and files that are none."""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.hangs.judgment.blame import CollectiveCount
from rocsteady.run.attempt.flight_recorder import (
    ask_flight_recorders,
    comparable,
    read_dump,
)

if sys.platform == "win32":
    pytest.skip("ranks are of POSIX", allow_module_level=True)

# As torch 2.13 wrote it for gloo on a CPU, shortened.
REAL = b"""{"comm_lib_version":"","entries":[
{"collective_seq_id":1,"input_dtypes":["Float"],"input_sizes":[[4]],"is_p2p":false,"op_id":1,
"pg_id":0,"process_group":["0","default_pg"],"profiling_name":"gloo:all_reduce","record_id":0,
"retired":true,"state":"scheduled","time_discovered_started_ns":0,"timeout_ms":1800000},
{"collective_seq_id":2,"input_dtypes":["Float"],"input_sizes":[[4]],"is_p2p":false,"op_id":2,
"pg_id":0,"process_group":["0","default_pg"],"profiling_name":"gloo:broadcast","record_id":1,
"retired":true,"state":"scheduled","time_discovered_started_ns":0,"timeout_ms":1800000}],
"nccl_comm_state":{},"pg_config":{"":{"desc":"","name":"","ranks":"[0]"}},
"pg_status":{"0":{"last_completed_collective":"2","last_enqueued_collective":"2"}},
"version":"2.10"}"""


# The same with one more all_reduce, pickled by torch itself; compressed.
PICKLED = (
    r"c-pN~%Wl&^6m=5!{YcYy(^8->42#N59}8B91&dnBdL$HCu06>e;n=>OaZ!;fv8oCZYd!$+11u1H0zZP-fcOKrp2R"
    r"6smDrF??wxz?oO91yzbv0yY{W2(Q=Uo@M`$pUvc~S7jU_flVbXE^IBJUy=1@8?utGtOio7mI6Dm3hxb$&|k|9b`F"
    r"M1|%m{ll#YPWDC%h(LXe%$T4p*V31x>0KAvq<HsOyU?_UZN8l$0=H-DD<Rqd4w6yctB#pko!uUa-48Xwp0M9Jyn0"
    r"#Cy#&8kF69CVoyST4K(GLBrdmrM=BLu;&jU*=3G_E{WuL=5n$CZ^kAfuvKh*z@+^&gE~VQ^<1E1%jI(j=MBB?k<t"
    r"81Ry<ih`q9Em7;A+3-*l^x?rhvwu*EIbyUA(}ml<ytb_QBzyePkc)H})I2$ZFcVLbEG5=IAA-qzRKoQXDP!b;e1a"
    r"tq@?kr?V|W5p{YJ>YAk!#_>Zh4BeCmna^=mpDNMiu1|V$n<9y8uSY+B`ug$lhi}Vz6cHsEnJr$BQMX!F%W_Q4+2o"
    r")SsI!Dh>n%&`coN2*!rMJWoT;nkJA>w_t5U!FZp#Ad$uG#ag5!qvN%}xiLmuEJs~1`WA^n)viR2b5K(e=*Z0!cb)"
    r"dmn|yQ!Z&<w{TucP_P=c?+p=yAtmmKYG4u==T!RC7029m7QBqbxJ@h0QBH6djWGW4-2peOHLWce^{aaI;;X&_ont"
    r";TL%NHU|r7!gYls^ENs9gY&BuK2|Jh2V}^pRd^268Pgg1E-hTP<Kj<nq)0urb6Y6@a^a7ovu^0ICb>aP7!TWbV|5"
    r"Q-EuAux+1w6wCyT1W8!CVj"
)


def dump(*collectives: tuple[str, int, str], p2p: bool = False) -> dict[str, object]:
    entries = [
        {
            "process_group": (group, "some group"),
            "collective_seq_id": number,
            "profiling_name": f"nccl:{name}",
            "is_p2p": p2p,
            "frames": [{"name": "main", "filename": "train.py", "line": 40}],
            "state": "scheduled",
        }
        for group, number, name in collectives
    ]
    return {"version": "2.10", "entries": entries, "pg_status": {}}


def test_a_real_dump_of_gloo() -> None:
    assert read_dump(REAL) == {"0": CollectiveCount(2, "broadcast")}


def test_a_real_pickled_dump_of_gloo() -> None:
    content = zlib.decompress(base64.b85decode(PICKLED))

    assert read_dump(content) == {"0": CollectiveCount(4, "broadcast")}


def test_a_pickled_dump_of_several_groups() -> None:
    content = pickle.dumps(dump(("0", 7, "all_reduce"), ("0", 8, "all_reduce"), ("1", 3, "send")))

    assert read_dump(content) == {
        "0": CollectiveCount(8, "all_reduce"),
        "1": CollectiveCount(3, "send"),
    }


def test_messages_between_two_ranks_are_not_counted() -> None:
    assert read_dump(pickle.dumps(dump(("0", 7, "send"), p2p=True))) == {}


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "made"

    class Runs:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(made),)

    with pytest.raises(ValueError, match="must not contain"):
        read_dump(pickle.dumps({"version": "2.10", "entries": [Runs()]}))
    assert not made.exists()


@given(st.binary(max_size=200))
def test_bytes_that_are_no_dump_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="not a dump"):
        read_dump(content)


def test_ranks_are_compared_in_a_group_of_all_that_has_lagged() -> None:
    ranks = {
        0: {"0": CollectiveCount(900, "all_reduce"), "1": CollectiveCount(12, "broadcast")},
        1: {"0": CollectiveCount(900, "all_reduce"), "1": CollectiveCount(11, "all_reduce")},
    }

    assert comparable(ranks) == {
        0: CollectiveCount(12, "broadcast"),
        1: CollectiveCount(11, "all_reduce"),
    }
    assert comparable({0: {"a": CollectiveCount(1, "x")}, 1: {"b": CollectiveCount(2, "x")}}) == {}
    assert comparable({}) == {}


@pytest.fixture
def ranks(tmp_path: Path):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Return two processes with the variables of ranks, in a folder of their own."""
    variables = {
        **os.environ,
        "TORCH_FR_DUMP_TEMP_FILE": "trace_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "ask_"),
    }
    started = [
        subprocess.Popen(["sleep", "60"], cwd=tmp_path, env=variables)  # noqa: S607
        for _ in range(2)
    ]
    yield {rank: process.pid for rank, process in enumerate(started)}
    for process in started:
        process.kill()
        process.wait()


def test_dumps_are_asked_for_through_the_pipe_of_the_rank(
    tmp_path: Path, ranks: dict[int, int]
) -> None:
    os.mkfifo(tmp_path / "ask_1.pipe")
    asked = os.open(tmp_path / "ask_1.pipe", os.O_RDONLY | os.O_NONBLOCK)
    since = time.time() - 1.0

    def writes_when_asked() -> None:
        while not os.read(asked, 1):
            time.sleep(0.01)
        (tmp_path / "trace_1.part").write_bytes(pickle.dumps(dump(("0", 41, "all_reduce"))))
        (tmp_path / "trace_1.part").replace(tmp_path / "trace_1")

    thread = threading.Thread(target=writes_when_asked, daemon=True)
    thread.start()
    (tmp_path / "trace_0").write_bytes(pickle.dumps(dump(("0", 42, "all_reduce"))))

    found = ask_flight_recorders(ranks, since=since, within=20.0)

    assert found == {
        0: {"0": CollectiveCount(42, "all_reduce")},
        1: {"0": CollectiveCount(41, "all_reduce")},
    }


def sleeping(folder: Path, **variables: str) -> subprocess.Popen[bytes]:
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.Popen(["sleep", "60"], cwd=folder, env=environment)  # noqa: S607


@pytest.mark.parametrize(
    ("variable", "below"), [("HOME", ".cache/torch"), ("XDG_CACHE_HOME", "torch")]
)
def test_dumps_are_read_from_where_torch_writes_them_unless_told(
    tmp_path: Path, variable: str, below: str
) -> None:
    home, since = tmp_path / "home", time.time() - 1.0
    (home / below).mkdir(parents=True)
    started = [sleeping(tmp_path, **{variable: str(home)}) for _ in range(2)]
    ranks = {rank: process.pid for rank, process in enumerate(started)}
    try:
        trace = home / below / "comm_lib_trace_rank_0"
        trace.write_bytes(pickle.dumps(dump(("0", 42, "all_reduce"))))
        began = time.monotonic()
        alone = ask_flight_recorders(ranks, since=since, within=60.0)
        took = time.monotonic() - began
        trace.with_name("comm_lib_trace_rank_1").write_bytes(
            pickle.dumps(dump(("0", 41, "all_reduce")))
        )
        both = ask_flight_recorders(ranks, since=since, within=60.0)
    finally:
        for process in started:
            process.kill()
            process.wait()

    assert alone == {}  # one of two may be another job's
    assert took < 30.0  # nobody was asked, so nothing is waited for
    assert both == {
        0: {"0": CollectiveCount(42, "all_reduce")},
        1: {"0": CollectiveCount(41, "all_reduce")},
    }


def test_dumps_of_another_attempt_are_not_read(tmp_path: Path, ranks: dict[int, int]) -> None:
    (tmp_path / "trace_0").write_bytes(pickle.dumps(dump(("0", 42, "all_reduce"))))

    assert ask_flight_recorders(ranks, since=time.time() + 3600.0, within=0.1) == {}


def test_ranks_without_a_recorder_cost_no_time() -> None:
    began = time.monotonic()

    assert ask_flight_recorders({0: os.getpid()}, since=0.0, within=60.0) == {}
    assert time.monotonic() - began < 30.0
