"""torchrun: the rendezvous that ``--rdzv-backend rocsteady`` or ``PET_RDZV_BACKEND`` selects.

Stock torchrun loads ``get`` through the entry point group ``torchrun.handlers``. The rendezvous
itself is torch's own, ``c10d``. Each generation of ranks gets a store of its own: with the shared
one of torch 2.13, a restarted rank may read the addresses of a rank that is dead.

Without ``rocsteady run`` above it, the handler starts a watcher beside the agent: ``rocsteady run``
that starts no command, but watches the ranks of this agent. They exchange JSON, one object a line,
over a socket. Watchers of several hosts agree on each generation through its store: no two hosts
start different things. ``torchrun_channels.py`` has both.

``rocsteady run`` copies this file beside ``inside/``, for a training environment without
rocsteady: it imports only the standard library and public names of torch.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.distributed import DistError
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    rendezvous_handler_registry,
)

if TYPE_CHECKING:
    from rocsteady_train.integrations.torchrun_channels import HostChannel, Proposal, Watcher

NAME = "rocsteady"
DELEGATE, STATIC = "c10d", "static"
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
FIRST, LAST = (2, 8), (2, 15)  # of the versions of torch that tools/torch_names.py has compared
ONE_HOST = "localhost:0"  # a free port
PORT = 29500  # torchrun's own default
BACKEND = "PET_RDZV_BACKEND"  # torchrun's own variable for its option
ENDPOINT = "PET_RDZV_ENDPOINT"  # likewise
RANK = "TORCHELASTIC_RUN_ID"  # a process that has it is a rank, and launches nothing
RUN = "ROCSTEADY_RUN"  # set for every process of a run
KEY = "ROCSTEADY_JOB_KEY"  # as in torchrun_channels
ANSWER_WITHIN = 600.0  # seconds: it may wait for a GPU that failed to come to rest
LAST_WORDS_WITHIN = 30.0
START_WITHIN = 60.0
PROPOSAL_WITHIN = 90.0  # seconds for a watcher to say what it would do
HOSTS_WITHIN = 120.0  # seconds for the other hosts to say so
CONTACT_WITHIN = 60.0  # seconds that the other hosts may be out of reach while ranks run
JOIN_WITHIN = 600  # seconds for the store to appear, as torch waits for hosts that join
STORE_LOOK = 2.0  # seconds between two tries to connect to it
SPARES_HEAR_WITHIN = 5.0  # seconds for hosts that wait for a place to hear that the job is done
FREE_FOR = 3.0  # seconds that a place is free before a spare takes it
PLACE_LOOK = 1.0  # seconds between two looks for one
CAME, FINISHED = "rocsteady/came", "rocsteady/finished"  # keys
END_LOOK = 10.0  # seconds between two questions whether another host has ended the job
C10D_HOSTS = 256  # c10d moves 216 bytes a second for each pair of hosts through one store
TRIES = 3  # rendezvous in a row in which hosts did not agree
RETRY, PERSON_NEEDED = 75, 76  # exit codes
LOG = "torch.distributed.elastic.multiprocessing.api"
FAILED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: \d+ \(pid: (\d+)\)")  # what it says
CONFIRMED = "ROCSTEADY_YES"  # 1: as --yes, for a job file that nobody could be asked about
SEVERAL = "--several-hosts"
# Torch's own errors of a store are among these; the signal that ends the agent is not.
FAULTS = (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, ImportError)


class Rendezvous(RendezvousHandler):
    """Delegates to torch's own rendezvous, and does what the watcher decides."""

    def __init__(  # noqa: PLR0913 - what create() found out, each by name
        self,
        inner: Any,  # noqa: ANN401 - torch's
        *,
        hosts: int,
        watched: bool,
        fewest: int = 0,
        restarts: bool = True,  # False: the scheduler does, and every failure ends all hosts
        key: bytes = b"",
    ) -> None:
        self._inner, self._restarts = inner, restarts
        self._store: Any = None  # of the last generation that this host was in
        self._next_end_look = 0.0
        self._hosts, self._is_elastic = hosts, 0 < fewest < hosts
        self._watched = watched
        self._several = hosts > 1
        confirmed = os.environ.get(CONFIRMED) == "1"
        self._options = ("--yes",) * confirmed + (SEVERAL,) * self._several
        self._watcher: Watcher | None = None
        self._before: dict[str, str | None] = {}  # variables that the last generation had changed
        self._generation = 0
        self._has_joined = False  # a generation; False: a spare so far
        self._arrival = 0  # of this host, counted from 1; 0: not known
        self._is_cut_off = False
        self._key = key
        self._channel: HostChannel | None = None  # to the other hosts, of this generation
        self._hangs: Any = None  # what hosts tell each other of stuck ranks
        self._is_hang_fault_said = False
        if watched:
            atexit.register(self._stopped)
            self._start_watcher()
            listener = logging.Handler()
            listener.emit = self._rank_failed  # type: ignore[method-assign]
            logging.getLogger(LOG).addHandler(listener)

    def get_backend(self) -> str:
        return NAME

    @property
    def use_agent_store(self) -> bool:
        return bool(self._inner.use_agent_store)

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet the other hosts, before each generation of ranks."""
        if self._has_joined and not self._restarts:
            self._end_all(self._last_words(over=False) or RETRY)
        if not self._has_joined and self._restarts:
            with contextlib.suppress(*FAULTS):  # only spares need to be known
                self._arrival = int(self._inner._store.add(CAME, 1))  # noqa: SLF001 - see _finish
        for _ in range(TRIES):
            try:
                self._wait_for_place()
                info = self._complete(self._inner.next_rendezvous())
                self._has_joined, self._store = True, info.store
            except (RendezvousClosedError, RendezvousGracefulExitError):
                if self._is_finished_by_others():
                    self._not_needed()
                sys.stderr.write("rocsteady: another host ended the job.\n")
                sys.exit(PERSON_NEEDED)
            except (RendezvousError, DistError) as error:
                if not self._several:
                    raise
                self._cut_off(error)
            if self._several:
                self._channel = self._to_others(info)  # watched or not: how one ends, all do
            if not self._watched or self._prepare(info):
                return info
        sys.stderr.write(
            f"rocsteady: the hosts did not agree in {TRIES} tries (exit code {RETRY}).\n"
        )
        sys.exit(RETRY)

    def _wait_for_place(self) -> None:
        """Wait while every place belongs to a host that trains, or is about to do so again.

        torch gives a place to the first who asks. After a rank has failed, that would often be a
        spare, and a healthy host would be left over.
        """
        may_be_spare = self._has_joined or self._arrival > self._hosts
        if not (self._several and self._restarts and may_be_spare):
            return
        since: float | None = None
        while since is None or time.monotonic() - since < FREE_FOR:
            self._inner.num_nodes_waiting()  # which reads the state of all hosts
            try:
                state = self._inner._state_holder.state  # noqa: SLF001 - nothing else tells them
                if state.closed or self._inner._this_node in state.participants:  # noqa: SLF001
                    return
                taken = len({*state.participants, *state.wait_list})
            except AttributeError:  # of another torch
                return
            since = None if taken >= self._hosts else since or time.monotonic()
            time.sleep(PLACE_LOOK)

    def _complete(self, info: RendezvousInfo) -> RendezvousInfo:
        """Count the hosts that torch takes for dead because their clocks are behind."""
        if self._is_elastic or info.world_size >= self._hosts:
            return info
        # Without this, torch would train with fewer hosts than it was told to, and not say so.
        sys.stderr.write(
            f"rocsteady: {info.world_size} of {self._hosts} hosts seem to be alive. If the clocks"
            " differ by more than 15 s, synchronise them.\n"
        )
        return RendezvousInfo(info.store, info.rank, self._hosts, info.bootstrap_store_info)

    def is_closed(self) -> bool:
        return bool(self._inner.is_closed())

    def set_closed(self) -> None:
        self._inner.set_closed()

    def num_nodes_waiting(self) -> int:
        """Return how many hosts wait to join; more than 0 begins a new generation."""
        if not self._several:
            return self._look()
        answers: list[int | BaseException] = []
        # The store has no bound of its own where a link is cut, so it is asked in a thread.
        asking = threading.Thread(target=self._ask, args=(answers,), daemon=True)
        asking.start()
        asking.join(CONTACT_WITHIN)
        answer = answers[0] if answers else TimeoutError(f"no answer for {CONTACT_WITHIN:.0f} s")
        if isinstance(answer, (RendezvousError, TimeoutError)):
            self._cut_off(answer)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _ask(self, answers: list[int | BaseException]) -> None:
        try:
            answers.append(self._look())
        except BaseException as error:  # noqa: BLE001 - raised again by who asked
            answers.append(error)

    def _look(self) -> int:
        watcher = self._watcher
        self._pass_on(watcher)
        if watcher is not None and watcher.end is not None:
            return 1  # the ranks end; the next rendezvous ends the job
        if watcher is not None and watcher.wants_restart and not watcher.is_gone:
            watcher.wants_restart = False
            watcher.tell(stopping=True)  # the ranks end now, without spending a restart
            return 1
        waiting = self._joining() or int(self._is_ended_elsewhere())
        if waiting and watcher is not None:
            watcher.tell(stopping=True)  # because of other hosts: nothing failed here
        return waiting

    def _joining(self) -> int:
        """Return how many hosts wait for a place that is free."""
        waiting = int(self._inner.num_nodes_waiting())
        if waiting and self._restarts:
            with contextlib.suppress(AttributeError):  # of another torch
                participants = self._inner._state_holder.state.participants  # noqa: SLF001
                return 0 if len(participants) >= self._hosts else waiting
        return waiting

    def get_run_id(self) -> str:
        return str(self._inner.get_run_id())

    def shutdown(self) -> bool:
        """Leave the rendezvous, at the end of the job; with the watcher's exit code, if any."""
        error = sys.exc_info()[1]  # torchrun calls this while its own error is on the way
        spares = self._several and self._restarts and error is None and self._finish()
        done = not self._is_cut_off and bool(self._inner.shutdown())
        if spares:
            time.sleep(SPARES_HEAR_WITHIN)  # the store may end with this process
        if isinstance(error, SystemExit):
            return done
        code = self._last_words(over=error is None, failed=_first_failure(error))
        if code and error is not None:
            sys.stderr.write(f"{error}\n")
        if error is not None and not self._restarts:
            self._end_all(code or RETRY)
        if code:
            sys.exit(code)
        return done

    def _last_words(self, **message: object) -> int:
        """Report the end to the watcher; return the code that it wants torchrun to end with."""
        watcher, self._watcher = self._watcher, None
        if watcher is None:
            return 0
        watcher.tell(**message)
        answer = watcher.answer(LAST_WORDS_WITHIN, "set")
        watcher.reap()
        return int((answer or {}).get("end") or 0)

    def _end_all(self, code: int) -> NoReturn:
        """End this host, and tell the others to do so: the scheduler starts all of them again."""
        with contextlib.suppress(*FAULTS):  # the store may be gone, and its host with it
            code = self._channel.end_all(code) if self._channel else code
        sys.stderr.write(f"rocsteady: the job ends on all hosts (exit code {code}).\n")
        sys.exit(code)

    def _is_ended_elsewhere(self) -> bool:
        """Return whether another host has ended a job that the scheduler restarts."""
        now = time.monotonic()
        if self._restarts or now < self._next_end_look:
            return False
        self._next_end_look = now + END_LOOK
        try:
            return self._channel is not None and self._channel.has("ended")
        except FAULTS as error:
            raise RendezvousError(f"the store is gone: {error}") from error

    def _finish(self) -> bool:
        """Write down that the job is done; return whether a spare host waits to hear it."""
        try:
            self._store.set(FINISHED, "1")
            self._inner._store.set(FINISHED, "1")  # noqa: SLF001 - the only store before a rendezvous
            return int(self._inner._store.add(CAME, 0)) > self._hosts  # noqa: SLF001
        except FAULTS:  # nobody is told, then
            return False

    def _is_finished_by_others(self) -> bool:
        """Return whether the job is done by a generation in which this host had no place."""
        try:
            was_there = self._store is not None and self._store.check([FINISHED])
            return not was_there and bool(self._inner._store.check([FINISHED]))  # noqa: SLF001 - see _finish
        except FAULTS:
            return False

    def _not_needed(self) -> NoReturn:
        sys.stderr.write("rocsteady: the job is done; this host was not needed.\n")
        if self._watcher is not None:
            self._watcher.tell(over=True, spare=True)
            self._watcher.answer(LAST_WORDS_WITHIN, "set")
            self._watcher.reap()
        sys.exit(0)

    def _rank_failed(self, record: logging.LogRecord) -> None:
        """Pass on how the first rank failed: torchrun may have reaped it before it was read."""
        found = FAILED.match(record.getMessage())
        if found and self._watcher is not None:
            self._watcher.tell(reaped={"code": int(found[1]), "pid": int(found[2])})

    def _stopped(self) -> None:
        """Report that a signal ended torchrun, which does not call ``shutdown`` then."""
        signalled = hasattr(getattr(sys, "last_value", None), "sigval")  # torch's SignalException
        if self._watcher is not None and signalled:
            self._watcher.tell(over=False, stopped=True)

    def _pass_on(self, watcher: Watcher | None) -> None:
        """Pass on what the watchers of all hosts tell each other of stuck ranks."""
        # Signs of life need no watcher: without them, other hosts would take this one for lost.
        was_gone = watcher is None or watcher.is_gone
        # What one that is gone has said, nobody can take back any more: its ranks may move.
        withdrawn: list[dict[str, Any]] = [{"part": None}]
        messages = withdrawn if watcher is None or watcher.is_gone else watcher.listen()
        if watcher is not None and watcher.is_gone and not was_gone and watcher.end is None:
            sys.stderr.write(
                "rocsteady: the watcher has ended; hangs go unnoticed until the ranks restart.\n"
            )
        if self._hangs is None:
            return
        try:
            for message in messages:
                self._hangs.heard(message)
            message = self._hangs.look()
        except FAULTS as error:  # whatever it is, the ranks go on
            if not self._is_hang_fault_said:
                self._is_hang_fault_said = True
                sys.stderr.write(f"rocsteady: hangs across hosts may not be found: {error!r}\n")
            return
        if message is not None and watcher is not None:
            watcher.tell(**message)

    def _prepare(self, info: RendezvousInfo) -> bool:
        """Let the watcher decide how this generation starts; False: repeat the rendezvous."""
        try:
            answer = self._decision(info)
        except FAULTS as error:  # of ours, or of the store: torchrun goes on without us
            sys.stderr.write(f"rocsteady: {type(error).__name__}: {error}\n")
            # Never without what the others have.
            answer = {"again": True} if self._several else None
        if answer is None:
            sys.stderr.write("rocsteady: the watcher does not answer; the ranks run unwatched.\n")
        elif "again" in answer:
            sys.stderr.write("rocsteady: the hosts did not agree; repeating the rendezvous.\n")
            return False
        elif "end" in answer:
            self._end(int(answer["end"]))
        return True

    def _decision(self, info: RendezvousInfo) -> dict[str, Any] | None:
        within = ANSWER_WITHIN if self._generation else START_WITHIN
        self._generation += 1
        for _ in range(2):  # that a watcher is gone may only be noticed when it is told something
            if self._watcher is None or (self._watcher.is_gone and self._watcher.end is None):
                self._start_watcher()
            if self._watcher is not None:
                self._watcher.tell(generation=True, host=info.rank)
            if self._watcher is not None and not self._watcher.is_gone:
                break
        decided: Proposal = self._agreed(self._channel) if self._channel else {}
        if decided.get("again"):
            return dict(decided)
        if decided.get("end"):  # whatever the watcher makes of it: one that begins does not end
            watcher = self._watcher
            said = None if watcher is None else watcher.answer(LAST_WORDS_WITHIN, "end")
            return said or {"end": decided["end"]}
        answer = None if self._watcher is None else self._watcher.answer(within, "set")
        if self._watcher is not None:
            self._watcher.wants_restart = False  # whatever was asked for is done by now
        if answer is None and decided.get("workarounds"):  # it has ended since it accepted them
            return {"again": True}
        self._set({} if answer is None else answer.get("set", {}))
        return answer

    def _to_others(self, info: RendezvousInfo) -> HostChannel:
        from rocsteady_train.integrations.torchrun_channels import HostChannel  # noqa: PLC0415 - where there are several

        generation = f"{self.get_run_id()} {self._round()}" if self._key else ""
        return HostChannel(
            info.store, info.rank, info.world_size, key=self._key, generation=generation
        )

    def _agreed(self, channel: HostChannel) -> Proposal:
        """Return what all hosts do in this generation: the leader says it, through the store."""
        from rocsteady_train.integrations.torchrun_channels import (  # noqa: PLC0415 - where there are several
            AGAIN,
            HangChannel,
            UntrustedError,
            ended,
            heaviest,
        )

        watcher = self._watcher
        self._hangs = HangChannel(channel)
        answer = None if watcher is None else watcher.answer(PROPOSAL_WITHIN, "proposal")
        mine: Proposal | None = None
        if answer is not None and "end" in answer:
            mine = ended(int(answer["end"]), "a watcher has ended")
        elif answer is not None:
            mine = answer["proposal"]
        if not channel.leads:
            channel.propose(mine)
        elif (others := channel.proposals(HOSTS_WITHIN)) is None:
            channel.decide(AGAIN)
        elif watcher is None or answer is None or "end" in answer:
            channel.decide(mine or heaviest(others))
        else:
            watcher.tell(proposals=others)
            answer = watcher.answer(PROPOSAL_WITHIN, "decision") or {}
            channel.decide(answer.get("decision") or heaviest([mine or {}, *others]))
        try:
            decision = channel.decision(PROPOSAL_WITHIN + 2 * HOSTS_WITHIN)
        except UntrustedError as error:
            self._refuse(channel, str(error))
        if decision is None or decision.get("again"):
            return AGAIN
        return self._settled(channel, decision)

    def _settled(self, channel: HostChannel, decision: Proposal) -> Proposal:
        """Return what is done: no host starts ranks unless all of them do what was decided."""
        watcher, answer = self._watcher, None
        if watcher is not None and watcher.end is None:
            watcher.tell(decision=decision)
            answer = watcher.answer(PROPOSAL_WITHIN, "accepted")
        if decision.get("end"):
            channel.part()
            return decision
        if watcher is not None and watcher.end is not None:
            self._refuse(channel, "this host does not do what the hosts decided")
        accepts = answer is not None or not decision.get("workarounds")
        if not accepts:
            sys.stderr.write("rocsteady: without a watcher, this host cannot apply the decision.\n")
        settled = channel.settle(HOSTS_WITHIN, accepts=accepts)
        if settled is False:
            self._refuse(channel, "another host does not do what the hosts decided, and says why")
        return decision if settled else {"again": True}

    def _refuse(self, channel: HostChannel, why: str) -> NoReturn:
        """End the job on all hosts: they would start different things, or a stranger speaks."""
        sys.stderr.write(f"rocsteady: {why}. Ending the job (exit code {PERSON_NEEDED}).\n")
        with contextlib.suppress(*FAULTS, RendezvousError):
            self._inner.set_closed()
            channel.refuse()
        self._is_cut_off = True  # the store may be gone, and its host with it
        if self._watcher is not None:  # nothing failed here
            self._watcher.tell(stopping=True)
            self._watcher.tell(generation=True)
        self._last_words(over=False)
        sys.exit(PERSON_NEEDED)

    def _round(self) -> int:
        """Return the number of the generation, by which what is signed for it is known."""
        return int(self._inner._state_holder.state.round) if self._restarts else 0  # noqa: SLF001 - nothing else tells it

    def _start_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.reap()
        from rocsteady_train.integrations.torchrun_channels import Watcher  # noqa: PLC0415 - not beside inside/

        try:
            self._watcher = Watcher(self._options)
        except (OSError, ValueError) as error:  # ValueError: unbalanced quotes in the variable
            self._watcher = None
            sys.stderr.write(f"rocsteady: the watcher could not be started: {error}\n")

    def _set(self, variables: dict[str, str | None]) -> None:
        """Set variables for the ranks that are started next; those of the last ones are reset."""
        for name, value in {**self._before, **variables}.items():
            self._before.setdefault(name, os.environ.get(name))
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _cut_off(self, error: Exception) -> NoReturn:
        """End here, and with that the ranks of this host: others may go on without them."""
        self._is_cut_off = True
        sys.stderr.write(f"rocsteady: the other hosts cannot be reached: {error}\n")
        sys.stderr.write(f"rocsteady: stopping the ranks of this host (exit code {RETRY}).\n")
        sys.exit(RETRY)

    def _end(self, code: int) -> None:
        """End the job on every host, with a code that schedulers know."""
        with contextlib.suppress(RendezvousError):  # another host has ended the store
            self._inner.set_closed()
        if self._watcher is not None:
            self._watcher.reap()
        sys.exit(code)


def _first_failure(error: Any) -> dict[str, int] | None:  # noqa: ANN401 - torch's ChildFailedError
    """Return the rank that torchrun saw fail first, and its exit code; below 0 is a signal."""
    try:
        rank, failure = error.get_first_failure()
        return {"rank": int(rank), "code": int(failure.exitcode)}
    except (AttributeError, TypeError, ValueError):  # another error, or another torch
        return None


def get() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return what makes a handler. torchrun calls this whenever it starts, for every back end."""
    if why := _why_absent(sys.argv, os.environ):
        sys.stderr.write(f"rocsteady: not active: {why}\n")
    elif _needs_endpoint(sys.argv, os.environ):
        os.environ[ENDPOINT] = ONE_HOST
    return create


def _needs_endpoint(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether torch would warn of master_addr, because no endpoint is given on one host."""
    if not arguments[0].endswith(("torchrun", "torch/distributed/run.py", "-m")):
        return False  # another launcher has defaults of its own, with which this would not go
    given = _options(arguments[1:])
    chosen = {f"rdzv_{word}" for word in ("backend", "endpoint")} | {"master_addr", "standalone"}
    hosts = given.get("nnodes") or environment.get("PET_NNODES", "1")
    is_ours = environment.get(BACKEND) == NAME and RANK not in environment
    return (
        is_ours
        and hosts in ("1", "1:1")
        and not given.keys() & chosen
        and ENDPOINT not in environment
    )


def _why_absent(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return why torchrun will not use this rendezvous, though it was asked for; "" if it will.

    Options go before variables in torchrun; other launchers have defaults of their own.
    """
    if environment.get(BACKEND) != NAME or RUN in environment or RANK in environment:
        return ""
    scripts = [place for place, word in enumerate(arguments) if place and word.endswith(".py")]
    given = _options(arguments[1 : min(scripts, default=len(arguments))])
    if "standalone" in given:
        return "--standalone selects torch's own rendezvous. Leave it out."
    if given.get("rdzv_backend", NAME) != NAME:
        return f"--rdzv-backend {given['rdzv_backend']} was given. Leave it out."
    if "accelerate" in arguments[0] and "rdzv_backend" not in given:
        return "accelerate has a default of its own. Add --rdzv_backend rocsteady."
    return ""


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return options by torchrun's names: spelled with - or _, joined to their value or not."""
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""]):
        name, is_joined, value = word.partition("=")
        if name.startswith("-"):
            found[name.lstrip("-").replace("-", "_")] = value if is_joined else following
    return found


def create(parameters: RendezvousParameters) -> RendezvousHandler:
    _check_version(torch.__version__)
    os.environ.setdefault(OWN_STORE, "1")
    if os.environ.get(ENDPOINT) == ONE_HOST:
        del os.environ[ENDPOINT]  # it was for torchrun's own arguments, not for ranks
    hosts, fewest, config = parameters.max_nodes, parameters.min_nodes, dict(parameters.config)
    restarts = hosts <= int(config.pop("c10d_hosts", C10D_HOSTS))
    if not restarts:  # torch has warned that it would ignore the number
        config["rank"] = _host_rank()
        sys.stderr.write(f"rocsteady: static rendezvous: node_rank {config['rank']} counts.\n")
    inner = RendezvousParameters(
        DELEGATE if restarts else STATIC,
        parameters.endpoint or _endpoint(hosts),
        parameters.run_id,
        fewest,
        hosts,
        parameters.local_addr,
        **config,
    )
    watched = RUN not in os.environ and sys.platform == "linux"
    key = _job_key() if watched and hosts > 1 else b""  # before the store of another is waited for
    os.environ.pop(KEY, None)  # one host has nobody to show it to, and no rank needs it
    return Rendezvous(
        _met(inner), hosts=hosts, watched=watched, fewest=fewest, restarts=restarts, key=key
    )


def _job_key() -> bytes:
    from rocsteady_train.integrations.torchrun_channels import KEY_FILE, job_key  # noqa: PLC0415 - where there are several

    try:
        return job_key(os.environ)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"rocsteady: {KEY_FILE}: {error} (exit code {PERSON_NEEDED})\n")
        sys.exit(PERSON_NEEDED)


def _host_rank() -> int:
    """Return the number of this host, as whoever started it says."""
    given = _options(sys.argv[1:]).get("node_rank")
    for number in (given, *map(os.environ.get, ("PET_NODE_RANK", "SLURM_NODEID"))):
        if number and number.isdigit():
            return int(number)
    raise ValueError(f"rocsteady: more than {C10D_HOSTS} hosts need --node-rank")


def _met(parameters: RendezvousParameters) -> RendezvousHandler:
    """Connect to the store. Its host may start later than this one, so that it is waited for."""
    within = parameters.get_as_int("join_timeout", JOIN_WITHIN) or JOIN_WITHIN
    deadline, is_said = time.monotonic() + within, False
    while True:
        try:
            return rendezvous_handler_registry.create_handler(parameters)
        except (RendezvousError, DistError) as error:  # noqa: PERF203 - each try may take a minute
            if parameters.max_nodes == 1:
                raise
            if time.monotonic() >= deadline:
                sys.stderr.write(
                    f"rocsteady: no store at {parameters.endpoint} for {within} s: {error}\n"
                    f"rocsteady: is the first host up? Ending, to be started again (exit code"
                    f" {RETRY}).\n"
                )
                sys.exit(RETRY)
            if not is_said:
                sys.stderr.write(
                    f"rocsteady: waiting up to {within} s for the store at {parameters.endpoint}\n"
                )
            is_said = True
            time.sleep(STORE_LOOK)


def _endpoint(hosts: int) -> str:
    """Return where hosts meet, for a command that names no endpoint."""
    if hosts == 1:
        return ONE_HOST
    from torch.distributed.run import parse_args  # noqa: PLC0415 - torchrun has it by now

    try:
        arguments = parse_args(sys.argv[1:])
        if arguments.master_addr not in ("127.0.0.1", "localhost"):
            return f"{arguments.master_addr}:{arguments.master_port}"
    except (AttributeError, SystemExit):  # another launcher's arguments
        pass
    if address := os.environ.get("MASTER_ADDR"):
        return f"{address}:{os.environ.get('MASTER_PORT', PORT)}"
    raise ValueError("rocsteady: several hosts need --rdzv-endpoint HOST:PORT or --master-addr")


def _check_version(version: str) -> None:
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or not FIRST <= (int(found[1]), int(found[2])) <= LAST:
        known = " to ".join(".".join(map(str, each)) for each in (FIRST, LAST))
        sys.stderr.write(
            f"rocsteady: torch {version} has not been tried with this rendezvous ({known} have)."
            " If torchrun fails, unset PET_RDZV_BACKEND.\n"
        )
