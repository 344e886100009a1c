"""The processes that time trials: forked ranks that run real plans on the real data plane.

    parent                      forks, reads what each rank has measured, ends what does not end by itself
    rank 0                      makes a group for each variant, tells the others, and says when time is over
    each rank                   runs every variant of a trial in turn, in blocks, and writes how long it took

Every rank writes what it sends before each second op: a peer that has read it has it in its cache no more.
That counts, since it is what a way costs the program: lines that peers have are to be taken back. What the
writing takes by itself does not. Where nobody writes, a peer finds in its cache what it has read before.
Programs do both. Where it is about writing around the cache, they read what they have got as well: what is
not in the cache then takes them longer than the op was shorter.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from distdbg.native import Group, View
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.backends.planner import Planner
from distdbg.runtime.backends.shared_memory import channel_nbytes_for
from distdbg.runtime.backends.waiting import choose_patience
from distdbg.runtime.plan import Topology
from distdbg.runtime.tuning.trials import DEFAULT, STREAM, VARIANTS, Trial

_SLOT_NBYTES = 512 << 10
#: Beside the variants of a trial: nothing but the writing.
_WRITING = "writing"
#: Beyond its time, for a rank that does not come to an end.
_PATIENCE_S = 3.0
_LIMIT_NS = int(_PATIENCE_S * 1e9)
_PR_SET_PDEATHSIG = 1
#: From here on NumPy asks for large pages, in which a peer is read faster.
_LARGE_NBYTES = 4 << 20

#: By trial and variant: seconds per op of each repetition, of the rank that took longest.
Times = dict[str, dict[str, list[float]]]


def time_trials(ranks: int, trials: Sequence[Trial], budget_s: float) -> Times:
    """Run them in `ranks` forked processes while there is time; empty where they cannot do it.

    What they wait for has deadlines, and whoever does not end is ended.

    The caller must have no other threads.
    """
    until = time.monotonic() + budget_s
    sys.stdout.flush()
    sys.stderr.flush()
    orders = [os.pipe() for _ in range(ranks)]
    found = [os.pipe() for _ in range(ranks)]
    pids = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            _be_rank(rank, ranks, trials, until, orders, found)
        pids.append(pid)
    for reader, writer in orders:
        os.close(reader)
        os.close(writer)
    for _, writer in found:
        os.close(writer)
    try:
        answers = [_read_all(reader, until + _PATIENCE_S) for reader, _ in found]
    finally:
        for reader, _ in found:
            os.close(reader)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    try:
        return _slowest([json.loads(answer) for answer in answers])
    except ValueError:
        return {}


def _slowest(each: Sequence[dict[str, dict[str, list[float]]]]) -> Times:
    """What the last rank needed, but for the writing; trials that all ranks have done."""
    found: Times = {}
    for trial in each[0]:
        if all(trial in of for of in each):
            slowest = {
                variant: [
                    max(turn) for turn in zip(*(of[trial][variant] for of in each), strict=True)
                ]
                for variant in each[0][trial]
            }
            writing_s = min(slowest.pop(_WRITING))
            found[trial] = {
                variant: [max(turn - writing_s, turn / 10) for turn in turns]
                for variant, turns in slowest.items()
            }
    return found


def _read_all(fd: int, until: float) -> bytes:
    text = bytearray()
    while select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(fd, 1 << 16)
        if not piece:
            return bytes(text)
        text += piece
    return b""


# ------------------------------------------------------------------------------------ one rank


def _be_rank(
    rank: int,
    ranks: int,
    trials: Sequence[Trial],
    until: float,
    orders: Sequence[tuple[int, int]],
    found: Sequence[tuple[int, int]],
) -> NoReturn:
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.setitimer(signal.ITIMER_REAL, max(0.1, until + _PATIENCE_S - time.monotonic()))
        for reader, writer in found:
            os.close(reader)
            if writer != found[rank][1]:
                os.close(writer)
        cores = sorted(os.sched_getaffinity(0))
        if ranks <= len(cores):  # on one of its own, and not on one beside another's
            os.sched_setaffinity(0, {cores[rank * len(cores) // ranks]})
        names = dict.fromkeys(name for trial in trials for name in trial.variants)
        variants = _make_groups(rank, ranks, len(cores), list({DEFAULT: None} | names), orders)
        times = _Rank(rank, ranks, variants).time_all(trials, until)
        with open(found[rank][1], "wb") as file:
            file.write(json.dumps(times).encode())
        code = 0
    finally:
        os._exit(code)  # whatever the parent has registered is not this process's


@dataclass(frozen=True, slots=True)
class _Variant:
    group: Group
    make: Callable[..., Any]


def _make_groups(
    rank: int, ranks: int, cores: int, names: Sequence[str], orders: Sequence[tuple[int, int]]
) -> dict[str, _Variant]:
    settings = {}
    for name in names:
        patience = choose_patience(ranks, cores, VARIANTS[name])
        settings[name] = (patience.spins, patience.yield_ns, True)
    groups = {}
    if rank == 0:
        cookies = {name: secrets.randbits(63) for name in names}
        for name in names:
            groups[name] = Group.create(
                ranks, _SLOT_NBYTES, channel_nbytes_for(ranks), cookies[name], *settings[name]
            )
        places = json.dumps([os.getpid(), [(groups[n].fd, cookies[n]) for n in names]]).encode()
        for _, writer in orders[1:]:
            os.write(writer, places + b"\n")
    else:
        with open(orders[rank][0], "rb", closefd=False) as file:
            pid, found = json.loads(file.readline())
        for name, (fd, cookie) in zip(names, found, strict=True):
            groups[name] = Group.open(rank, pid, fd, cookie, *settings[name])
    variants = {}
    for name in names:
        profile = VARIANTS[name]
        ways = profile.ways(ranks)
        group = groups[name]
        group.tune(
            profile.stream_nbytes, profile.tile_nbytes, profile.pushed_nbytes, ways.exchanged_nbytes
        )
        group.join(time.monotonic_ns() + _LIMIT_NS, [])
        topology = Topology(single_copy=group.single_copy, slot_nbytes=_SLOT_NBYTES, ways=ways)
        variants[name] = _Variant(group, Planner(rank, ranks, list(range(ranks)), topology).make)
    return variants


class _Rank:
    """Its arrays and groups, and how an op is run."""

    def __init__(self, rank: int, ranks: int, variants: dict[str, _Variant]) -> None:
        self._rank = rank
        self._ranks = ranks
        self._variants = variants
        self._memory: dict[tuple[str, bool], mmap.mmap] = {}
        #: For what rank 0 says to all.
        self._word = bytearray(4)

    def time_all(self, trials: Sequence[Trial], until: float) -> Times:
        times: Times = {}
        for trial in trials:
            if not self._is_there_time(until):
                break
            times[trial.name] = self._time(trial)
        return times

    def _meet(self) -> None:
        self._run(self._variants[DEFAULT], Call(Kind.BARRIER, (), ()), (), ())

    def _is_there_time(self, until: float) -> bool:
        self._word[0] = time.monotonic() < until
        view = View(memoryview(self._word).cast("f"), True, int(Dtype.float32))
        self._run(self._variants[DEFAULT], Call(Kind.BROADCAST, (), (), root=0), (view,), (view,))
        return bool(self._word[0])

    def _time(self, trial: Trial) -> dict[str, list[float]]:
        ops = {name: self._op(trial, self._variants[name]) for name in trial.variants}
        if trial.topic == STREAM:
            ops = {name: self._and_read(trial, op) for name, op in ops.items()}
        write = self._write(trial)
        times: dict[str, list[float]] = {name: [] for name in (_WRITING, *ops)}
        for op in ops.values():  # makes the plan, and touches the slots
            op()
        ops[_WRITING] = lambda: None
        for _ in range(trial.repetitions):
            for name, op in ops.items():
                op()  # what another variant has left in the caches is gone
                self._meet()
                began = time.perf_counter()
                for _ in range(trial.ops // 2):
                    write()
                    op()
                    op()
                times[name].append((time.perf_counter() - began) / trial.ops)
        return times

    def _write(self, trial: Trial) -> Callable[[], object]:
        """What a program does before an op: write what it sends."""
        if trial.kind is Kind.BARRIER or (trial.kind is Kind.BROADCAST and self._rank != 0):
            return lambda: None
        nbytes = self._source_nbytes(trial)
        return partial(ctypes.memset, View(self._array("source", nbytes), False).address, 0, nbytes)

    def _and_read(self, trial: Trial, op: Callable[[], None]) -> Callable[[], None]:
        """What a program does after a broadcast: read what it has got, here for a byte that is not in it."""
        address = View(self._array("source", trial.nbytes), False).address
        look = partial(
            ctypes.CDLL(None).memchr, ctypes.c_void_p(address), 1, ctypes.c_size_t(trial.nbytes)
        )

        def both() -> None:
            op()
            look()

        return both

    def _source_nbytes(self, trial: Trial) -> int:
        return trial.nbytes * (self._ranks if trial.kind is Kind.ALL_TO_ALL else 1)

    def _op(self, trial: Trial, variant: _Variant) -> Callable[[], None]:
        """What is to be timed, ready to be called."""
        kind, n, nbytes = trial.kind, self._ranks, trial.nbytes
        if kind is Kind.BARRIER:
            return lambda: self._run(variant, Call(kind, (), ()), (), ())
        source_nbytes = self._source_nbytes(trial)
        source = self._array("source", source_nbytes)
        if kind is Kind.SEND:
            return self._ping_pong(variant, source, self._array("target", nbytes))
        inputs = outputs = (View(source, True, int(Dtype.float32)),)
        op = ReduceOp.SUM if kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER) else None
        if kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL):
            factor = {Kind.ALL_GATHER: n * nbytes, Kind.REDUCE_SCATTER: nbytes // n}
            target = self._array("target", factor.get(kind, source_nbytes))
            outputs = (View(target, True, int(Dtype.float32)),)
        call = Call(kind, (), (), op=op, root=0 if kind is Kind.BROADCAST else -1)
        return partial(self._run, variant, call, inputs, outputs)

    def _ping_pong(self, variant: _Variant, source: Any, target: Any) -> Callable[[], None]:
        out, into = View(source, False), View(target, True)
        transfer, peer = variant.group.transfer, self._rank ^ 1
        order = ((True, out), (False, into)) if self._rank == 0 else ((False, into), (True, out))

        def run() -> None:
            for is_send, view in order:
                transfer(is_send, view, peer, 0, _LIMIT_NS)

        return run

    def _run(
        self, variant: _Variant, call: Call, inputs: tuple[View, ...], outputs: tuple[View, ...]
    ) -> None:
        code = call.kind | (call.root + 1) << 16 | (0 if call.op is None else call.op.code << 8)
        variant.group.run(code, inputs, outputs, _LIMIT_NS, call, variant.make, 0)

    def _array(self, name: str, nbytes: int) -> Any:
        """Return the array of that name, which grows; in large pages from where NumPy has them."""
        is_large = nbytes >= _LARGE_NBYTES
        memory = self._memory.get((name, is_large))
        if memory is None or len(memory) < nbytes:
            length = -(-nbytes >> 21) << 21 if is_large else nbytes
            # Shared memory, mmap's default, has no large pages on most systems.
            memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if is_large:
                with suppress(OSError):
                    memory.madvise(mmap.MADV_HUGEPAGE)
            self._memory[name, is_large] = memory
        return memoryview(memory)[:nbytes].cast("f")
